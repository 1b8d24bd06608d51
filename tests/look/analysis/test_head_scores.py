"""Scores of heads, on heads that are built to do one thing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from qkv.io.families import preset
from qkv.look.analysis import head_scores as module
from qkv.look.analysis.head_scores import head_scores, induction_scores
from qkv.nn.models.build import build

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


def decoder() -> nn.Module:
    return build(preset("gpt2", vocab_size=16, d_model=8, n_layers=2, n_heads=2, max_positions=32), seed=0).eval()


@pytest.mark.parametrize(
    ("offset", "name", "expected"), [(1, "previous", 7 / 8), (0, "itself", 1.0), (99, "sink", 1.0)]
)
def test_heads_that_look_at_one_token(offset: int, name: str, expected: float):
    model = decoder()
    weights = torch.zeros(1, 2, 8, 8)
    t = torch.arange(8)
    weights[:, :, t, (t - offset).clamp(min=0)] = 1.0
    scores = _with_weights(model, weights)
    assert getattr(scores, name) == pytest.approx(expected)
    assert scores.entropy == pytest.approx(0.0, abs=1e-6)


def test_even_heads_have_the_greatest_entropy():
    model = decoder()
    weights = torch.full((1, 2, 8, 8), 1.0).tril()
    weights /= weights.sum(-1, keepdim=True)
    scores = _with_weights(model, weights)
    assert scores.entropy == pytest.approx(sum(math.log(n) for n in range(1, 9)) / 8)
    assert scores.distance == pytest.approx(sum((n - 1) / 2 for n in range(1, 9)) / 8)
    assert scores.sink == pytest.approx(sum(1 / n for n in range(1, 9)) / 8)


def _with_weights(model: nn.Module, weights: torch.Tensor) -> module.HeadScores:
    """The scores of a head with known weights."""
    original = module.tap.weights
    try:
        module.tap.weights = lambda request, heads, rows: weights[:, list(heads)][:, :, list(rows)]
        return head_scores(model, IDS)[1]
    finally:
        module.tap.weights = original


def test_parts_of_long_texts_add_up(monkeypatch: pytest.MonkeyPatch):
    model = decoder()
    whole = head_scores(model, IDS)
    monkeypatch.setattr(module, "ROWS", 3)
    for part, one in zip(head_scores(model, IDS), whole, strict=True):
        assert part.entropy == pytest.approx(one.entropy)
        assert part.previous == pytest.approx(one.previous)


def test_padding_does_not_count():
    model = build(preset("bert-base", vocab_size=16, d_model=8, n_layers=1, n_heads=2), seed=0)
    padded = torch.tensor([[3, 1, 4, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 0, 0]]).bool()
    alone, beside = head_scores(model, padded[:, :3]), head_scores(model, padded, attention_mask=mask)
    for one, other in zip(alone, beside, strict=True):
        assert one.entropy == pytest.approx(other.entropy, rel=1e-5)
        assert one.sink == pytest.approx(other.sink, rel=1e-5)


def test_every_head_of_every_layer_has_scores():
    model = build(preset("transformer", vocab_size=16, d_model=8, n_layers=2, n_heads=2, d_ff=16), seed=0)
    scores = head_scores(model, IDS, IDS[:, :3])
    assert len(scores) == 2 * 3 * 2
    assert all((s.distance is None) == ("cross" in s.name) for s in scores)


@pytest.mark.parametrize(("follows", "score"), [(1, 1.0), (0, 0.0)])
def test_induction_of_a_head_that_copies(monkeypatch: pytest.MonkeyPatch, follows: int, score: float):
    """A query looks at the token after its earlier occurrence, or at that occurrence itself."""
    length = 8
    weights = torch.zeros(2, 1, 2 * length, 2 * length)
    t = torch.arange(length)
    weights[:, :, length + t, t + follows] = 1.0
    monkeypatch.setattr(module.tap, "weights", lambda request, heads, rows: weights[:, :, list(rows)])
    scores = induction_scores(decoder(), length=length, batch=2)
    assert scores == {(f"decoder.blocks.{i}.attention", h): score for i in (0, 1) for h in (0, 1)}


def test_induction_is_measured_on_a_text_that_repeats():
    model = decoder()
    seen: list[torch.Tensor] = []
    handle = model.decoder.embedding.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    scores = induction_scores(model, length=8, batch=2)
    handle.remove()
    assert torch.equal(seen[0][:, :8], seen[0][:, 8:])
    assert all(0 < score < 1 for score in scores.values())


def test_induction_needs_a_decoder_and_room():
    with pytest.raises(ValueError, match="induction is measured in decoders"):
        induction_scores(build(preset("bert-base", vocab_size=16, d_model=8, n_layers=1, n_heads=2), seed=0))
    with pytest.raises(ValueError, match="more than this model's context of 32"):
        induction_scores(decoder(), length=17)
