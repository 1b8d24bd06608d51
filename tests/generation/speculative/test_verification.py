"""Accepted and redrawn tokens have the distribution of the model, whatever the draft."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from fast_subset import diagonals
from scipy.stats import chisquare
from torch import Tensor

import qkv
from qkv.generation import generate
from qkv.generation.logits_processors import apply, processors_for
from qkv.generation.settings import Generation
from qkv.generation.speculative.proposals import Proposals
from qkv.generation.speculative.rows import Continuation
from qkv.generation.speculative.verification import Randomness, verify

VOCAB, NEW, SAMPLES = 4, 4, 6000
PROMPT = [1, 2, 1]


def model(seed: int, layers: int = 2) -> torch.nn.Module:
    spec = qkv.preset("gpt2", vocab_size=VOCAB, d_model=16, n_heads=2, n_layers=layers, max_positions=16)
    built = qkv.build(spec, seed=seed).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.mul_(4)
    return built


@torch.no_grad()
def sequences(built: Any, settings: Generation) -> dict[tuple[int, ...], float]:
    """The probability of every continuation of NEW tokens, one by one through the model."""
    chain = processors_for(settings, [], len(PROMPT))
    likely = {(): 1.0}
    for _ in range(NEW):
        longer = {}
        for tokens, p in likely.items():
            ids = torch.tensor([[*PROMPT, *tokens]])
            probabilities = apply(chain, ids, built(ids)[:, -1]).double().softmax(-1)[0]
            longer |= {(*tokens, t): p * float(q) for t, q in enumerate(probabilities) if q > 0}
        likely = longer
    return likely


PROCESSORS: list[dict[str, Any]] = [
    {"do_sample": True},
    {"temperature": 0.6},
    {"temperature": 1.5, "top_k": 3},
    {"top_p": 0.8},
    {"min_p": 0.2},
    {"do_sample": True, "repetition_penalty": 1.5},
    {"temperature": 1.2, "no_repeat_ngram_size": 2, "top_p": 0.9},
]


@pytest.mark.parametrize(("way", "sampling"), diagonals(["draft", "early-exit:1", "lookup"], PROCESSORS, every=5))
def test_samples_have_the_models_distribution(way: str, sampling: dict[str, Any]) -> None:
    """Chi-square over all sequences of four tokens; the seeds are fixed, so the test either always passes or never."""
    target = model(0)
    settings = Generation(max_new_tokens=NEW, num_samples=SAMPLES, seed=7, **sampling)
    speculation = {"draft": model(1, layers=1)} if way == "draft" else {"speculate": way}
    out = generate(target, [PROMPT], settings=settings, **speculation)
    assert out.acceptance is not None
    if way != "lookup":
        rejected = sum(count.proposed - count.accepted for count in out.acceptance[0])
        assert rejected > SAMPLES / 50, "the draft is too good for this test"
    expected, counts = sequences(target, settings), Counter(map(tuple, out.sequences[0]))
    assert set(counts) <= set(expected)
    common = [tokens for tokens, p in expected.items() if p * SAMPLES >= 5]
    observed = [counts[tokens] for tokens in common]
    foretold = [expected[tokens] * SAMPLES for tokens in common]
    rest = SAMPLES - sum(observed), SAMPLES - sum(foretold)
    if rest[1] >= 5:
        observed, foretold = [*observed, rest[0]], [*foretold, rest[1]]
    else:
        foretold = [value * sum(observed) / sum(foretold) for value in foretold]
    assert chisquare(observed, foretold).pvalue > 0.001


def checked(p: Tensor, q: Tensor, tokens: list[int], rows: int = 4000) -> tuple[Tensor, float]:
    """Frequencies of the first token after verification, and the share of accepted first proposals."""
    random = Randomness(range(rows), torch.device("cpu"))
    count = len(tokens)
    proposals = Proposals([tokens] * rows, q.double().expand(rows, count, -1))
    results = verify(
        p.log().expand(rows, count + 1, -1), proposals, [Continuation(i, (), 9) for i in range(rows)], random
    )
    first = Counter(result.tokens[0] for result in results)
    accepted = sum(result.accepted > 0 for result in results) / rows
    return torch.tensor([first[t] / rows for t in range(p.shape[-1])]), accepted


def test_a_token_is_accepted_with_probability_p_over_q() -> None:
    p, q = torch.tensor([0.2, 0.5, 0.3]), torch.tensor([0.5, 0.3, 0.2])
    frequencies, accepted = checked(p, q, [0])
    assert accepted == pytest.approx(0.4, abs=0.03)
    rest = torch.tensor([0.0, 0.2, 0.1]) / 0.3  # max(0, p − q), normalized
    expected = 0.4 * torch.tensor([1.0, 0, 0]) + 0.6 * rest
    assert frequencies.tolist() == pytest.approx(expected.tolist(), abs=0.03)
    assert checked(p, q, [1])[1] == 1.0
