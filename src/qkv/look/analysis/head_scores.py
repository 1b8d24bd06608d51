"""Scores that say what attention heads look at: entropy, distance, previous token, first token, induction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...core.several import worded
from ...nn.attention import tap
from ...nn.kernels.request import Request
from ...nn.models.transformer import TransformerModel

ROWS = 1024  # queries whose weights are in memory at once


@dataclass(frozen=True)
class HeadScores:
    """Means over the queries of a text, for one head. Shares of weight are from 0 to 1.

    name, head: the layer's attention (as `decoder.blocks.3.attention`), and the index of the head.
    entropy:    −Σ_s w_s ln w_s in nats: 0 if all weight is on one key, ln S if it is even.
    distance:   Σ_s w_s |p_t − p_s|, in tokens (of a picture: in patches); None for cross-attention, as are the next two.
    previous:   weight on the token before the query ("previous-token head"); of a picture, the patch above or to the left.
    itself:     weight on the query's own token.
    sink:       weight on the first token (attention sink, Xiao et al. 2023).
    induction:  weight on the token after an earlier occurrence of the query's token, in a random text that is repeated
                (Olsson et al. 2022); None unless it was measured.
    """

    name: str
    head: int
    entropy: float
    distance: float | None
    previous: float | None
    itself: float | None
    sink: float
    induction: float | None = None


@worded
def head_scores(model: nn.Module, *args: object, **inputs: object) -> list[HeadScores]:
    """Run `model(*args, **inputs)` once and return the scores of every head, layer by layer, over its real tokens.

    Weights are recomputed one head and at most `ROWS` queries at a time. Layers whose mechanism has no weights are left out.
    """
    return scores_of(_requests(model, *args, **inputs))


@worded
def scores_of(requests: Sequence[Request]) -> list[HeadScores]:
    """Return the scores of every head of recorded requests (`qkv.record_attention`), in their order."""
    return [
        HeadScores(request.name, head, *_scores(request, head))
        for request in requests
        for head in range(_heads(request))
    ]


@worded
def induction_scores(model: nn.Module, length: int = 32, batch: int = 8, seed: int = 0) -> dict[tuple[str, int], float]:
    """Return the induction score of every self-attention head of a decoder, by (name, head).

    The text is `length` random tokens followed by the same tokens. For a query in the second half, the score is its
    weight on the token that followed the same token in the first half.

    Raises ValueError for a model that is no decoder alone, and for a text longer than its context.
    """
    if not isinstance(model, TransformerModel) or model.decoder is None or model.is_encoder_decoder:
        raise ValueError("induction is measured in decoders, which continue a text; this model is none")
    limit = model.max_positions
    if limit is not None and 2 * length > limit:
        raise ValueError(f"twice {length} tokens are more than this model's context of {limit}; take a shorter text")
    generator = torch.Generator().manual_seed(seed)
    half = torch.randint(model.vocab_size, (batch, length), generator=generator)
    device = model.device
    ids = torch.cat([half, half], 1).to(device)
    scores: dict[tuple[str, int], float] = {}
    for request in _requests(model, ids):
        rows = range(length, 2 * length)
        for head in range(_heads(request)):
            weights = tap.weights(request, [head], rows)[:, 0]
            at = torch.arange(length, device=device)
            scores[request.name, head] = float(weights[:, at, at + 1].mean())
    return scores


def _requests(model: nn.Module, *args: object, **inputs: object) -> list[Request]:
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), tap.record_attention() as requests:
            model(*args, **inputs)
        return requests
    finally:
        model.train(training)


def _heads(request: Request) -> int:
    return request.n_heads if request.known_weights is None else request.known_weights.shape[1]


def _scores(request: Request, head: int) -> tuple[float, float | None, float | None, float | None, float]:
    """Entropy, distance, previous, itself, sink."""
    batch = request.q.shape[0]
    keys = request.kv_layout.positions.expand(batch, -1, -1)
    real_keys = keys[..., 0] >= 0
    first = (real_keys & (real_keys.cumsum(1) == 1)).double()
    sums, count = torch.zeros(5, dtype=torch.float64, device=keys.device), 0
    for rows, weights in _in_parts(request, head):
        queries = request.layout.positions[:, rows].expand(batch, -1, -1)
        real = queries[..., 0] >= 0
        offset = queries[:, :, None] - keys[:, None]
        distance = offset.double().norm(dim=-1)
        values = (
            torch.special.entr(weights).sum(-1),
            (weights * distance).sum(-1),
            (weights * (offset.sum(-1) == 1) * (distance == 1)).sum(-1),
            (weights * (distance == 0)).sum(-1),
            (weights * first[:, None]).sum(-1),
        )
        sums += torch.stack([value[real].sum() for value in values])
        count += int(real.sum())
    entropy, far, previous, itself, sink = (sums / max(count, 1)).tolist()
    crosses = "cross" in request.name.split(".")
    return (entropy, None, None, None, sink) if crosses else (entropy, far, previous, itself, sink)


def _in_parts(request: Request, head: int) -> Iterator[tuple[list[int], Float[Tensor, "B T S"]]]:
    """The weights of a head for at most `ROWS` queries at a time."""
    queries = request.q.shape[1]
    for start in range(0, queries, ROWS):
        rows = list(range(start, min(start + ROWS, queries)))
        yield rows, tap.weights(request, [head], rows)[:, 0].double()
