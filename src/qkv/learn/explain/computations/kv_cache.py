"""A decoding step with its KV cache, against the same step recomputed from all tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from ....nn.attention import tap
from .. import toy
from ..explanation import Explanation
from ..steps import Step, listing, matrix
from ..subject import Attended, Subject

TITLE = "KV cache: a step computes one query, key and value"


def example() -> Explanation:
    return of(toy.language_model())


@torch.no_grad()
def of(subject: Subject) -> Explanation:
    everything = subject.attention("decoder")
    ids = torch.tensor([subject.target or subject.ids], device=subject.model.device)
    tokens = subject.tokens_of("decoder")
    if ids.shape[1] < 2:
        raise ValueError("a cache is of use from the second token on; give a longer text")
    model = subject.model
    cache = model.start(source=subject.inputs[0]) if model.is_encoder_decoder else model.start(1)
    model.step(ids[:, :-1], cache)
    before = cache.nbytes
    with tap.record_attention() as requests:
        logits = model.step(ids[:, -1:], cache)
    own = [request for request in requests if "cross" not in request.name]
    cached = Attended(own[everything.layer], everything.layer, everything.head, 0, tokens[-1:], tokens)
    recomputed = model(*subject.inputs)[0, -1]
    n, a = len(tokens), everything
    if len(cached.keys) != cached.k.shape[0]:
        raise ValueError(f"the cache of layer {a.layer} keeps only part of the text; give a text of fewer tokens")
    about = (
        f"{subject.about} Step {n}: the decoder has read {n - 1} tokens and reads “{tokens[-1]}”. Decoder, "
        f"layer {a.layer}, head {a.head}."
    )
    steps = (
        _cached(cached, tokens),
        _attended(cached, a, tokens),
        _same(cached, a, logits[0].float(), recomputed.float()),
        _saved(subject, own, n, cache.nbytes - before),
    )
    return Explanation("kv-cache", TITLE, about, steps)


def _cached(cached: Attended, tokens: tuple[str, ...]) -> Step:
    text = (
        f"The cache holds the projected keys and values of the first {len(tokens) - 1} tokens. A key depends on its own "
        f"token and those before it, never on later ones, so it stays as it is. Only “{tokens[-1]}” is projected."
    )
    rows = [*(f"{token} (cache)" for token in tokens[:-1]), f"{tokens[-1]} (new)"]
    last = len(rows) - 1
    tables = (
        matrix(cached.k, rows, caption="keys", around=last),
        matrix(cached.v, rows, caption="values", around=last),
    )
    return Step("Keys and values", text, "K = [K_cache; k_new]   V = [V_cache; v_new]", (), tables)


def _attended(cached: Attended, everything: Attended, tokens: tuple[str, ...]) -> Step:
    columns = {
        "score": cached.scores[0],
        "weight": cached.weights[0],
        "weight, recomputed": everything.weights[-1],
    }
    text = (
        f"One query, that of “{tokens[-1]}”, attends to all {len(tokens)} keys. There is nothing to mask: none "
        "of them is later."
    )
    table = listing(tokens, columns, "weights of the new token", "weight")
    return Step("One row of attention", text, "softmax(q_new Kᵀ / √d) V", (), (table,))


def _same(cached: Attended, a: Attended, logits: Tensor, recomputed: Tensor) -> Step:
    differences = {
        "keys": (cached.k - a.k).abs().max(),
        "values": (cached.v - a.v).abs().max(),
        "weights": (cached.weights[0] - a.weights[-1]).abs().max(),
        "logits of the next token": (logits - recomputed).abs().max(),
    }
    table = listing(
        list(differences),
        {"largest difference": [f"{float(x):.1e}" for x in differences.values()]},
        "with and without the cache",
    )
    text = "Computing all tokens again gives the same, up to the rounding of floating-point numbers."
    return Step("The same as without a cache", text, "", (), (table,))


def _saved(subject: Subject, requests: list[tap.Request], n: int, grown: int) -> Step:
    request = requests[0]
    size = request.k.element_size()
    kv, d, e, layers = request.n_kv_heads, request.k.shape[-1], request.v.shape[-1], len(requests)
    per_token = sum(r.n_kv_heads * (r.k.shape[-1] + r.v.shape[-1]) * r.k.element_size() for r in requests)
    columns = {
        "with cache": [1.0, float(n), float(n)],
        "without": [float(n), n * (n + 1) / 2, float(sum(i * i for i in range(1, n + 1)))],
    }
    rows = ["tokens projected in this step", f"tokens projected in {n} steps", f"query-key pairs in {n} steps"]
    columns["with cache"][2] = n * (n + 1) / 2
    text = (
        f"The price is memory. A token takes 2 · layers · kv_heads · d_head numbers of {size} bytes: 2 · {layers} · "
        f"{kv} · {d} · {size} "
        f"= {2 * layers * kv * d * size:,} bytes."
        if d == e and per_token == 2 * layers * kv * d * size
        else f"The price is memory: {per_token:,} bytes for each token, over {layers} layers."
    )
    lines = (f"{n} tokens: {n} · {per_token:,} = {n * per_token:,} bytes",)
    return Step("What it saves, and what it costs", text, "", lines, (listing(rows, columns, "work by tokens"),))
