"""Scores in steps: every step by its formula, and the share of the output by norms."""

from __future__ import annotations

import json
import math

import pytest
import torch

from qkv.io.families import preset
from qkv.look.view.attention import layer_weights
from qkv.look.view.score import score_breakdown
from qkv.nn.activations import intervene
from qkv.nn.attention import tap
from qkv.nn.attention.attend import attend
from qkv.nn.models.build import build
from qkv.nn.patterns.basic import causal
from qkv.nn.positions.base import Widths
from qkv.nn.positions.bias import ALiBi


def test_every_step_follows_its_formula() -> None:
    q, k, v = torch.randn(1, 6, 4, 8), torch.randn(1, 6, 2, 8), torch.randn(1, 6, 2, 5)
    bias = ALiBi().module(Widths(32, 4, 8, None)).bias()
    with tap.record_attention() as requests:
        attend(q, k, v, pattern=causal(), bias=bias, softcap=3.0, scale=0.5, name="layer")
    layer = layer_weights(requests, 0, range(6), range(6))
    one = score_breakdown(layer, 3, 4, 1, ("x", "y"))
    dot = float(q[0, 4, 3].double() @ k[0, 1, 1].double())
    assert one.dot == pytest.approx(dot) and sum(one.products) == pytest.approx(dot)
    assert one.scaled == pytest.approx(0.5 * dot)
    assert one.position == pytest.approx(-ALiBi().slopes(4)[3] * 3)
    score = 3 * math.tanh(0.5 * dot / 3) + one.position
    assert one.score == pytest.approx(score, rel=1e-5) == pytest.approx(one.row_scores[1], rel=1e-5)
    assert one.weight == pytest.approx(math.exp(score) / sum(map(math.exp, one.row_scores)), rel=1e-5)
    assert one.weight == pytest.approx(float(layer.weights[3, 4, 1]))
    assert one.row_scores[5] == -math.inf and one.allowed and not one.projected
    later = score_breakdown(layer, 3, 4, 5, ("x", "z"))
    assert not later.allowed and later.weight == 0 and "the pair is excluded" in str(later)
    assert json.loads(json.dumps(later.to_json()))["score"] is None
    text = str(one)
    assert text.startswith("layer 0, head 3: x (token 4) attends to y (token 1)\nq·k: ")
    assert "soft cap: 3 · tanh" in text and "position term: -" in text and "over 5 keys" in text


def test_shares_match_what_each_key_adds_to_the_output() -> None:
    model = build(preset("gpt2", vocab_size=20, d_model=16, n_layers=2, n_heads=2, d_ff=16), seed=0).eval()
    with tap.record_attention() as requests, torch.no_grad():
        model(torch.arange(7)[None])
    layer = layer_weights([requests[1]], 1, range(7), range(7))
    one = score_breakdown(layer, 1, 5, 2, ("a", "b"), model)
    assert one.projected
    matrix = model.decoder.blocks[1].attention.out.weight[:, 8:].detach().double()
    parts = [one.row_weights[j] * matrix @ requests[1].v[0, j, 1].double() for j in range(7)]
    assert one.norms == pytest.approx([float(part.norm()) for part in parts])
    assert one.share == pytest.approx(one.norms[2] / sum(one.norms))
    with pytest.raises(ValueError, match="there is no key 7; this layer's are 0 to 6"):
        score_breakdown(layer, 1, 5, 7, ("a", "b"), model)


def test_a_bias_has_its_part_apart() -> None:
    model = build(preset("gpt2", vocab_size=20, d_model=16, n_layers=1, n_heads=2, position="alibi"), seed=0).eval()
    with tap.record_attention() as requests, torch.no_grad():
        model(torch.arange(7)[None])
    one = score_breakdown(layer_weights(requests, 0, range(7), range(7)), 1, 5, 2, ("a", "b"), model)
    assert one.rotation is None and one.score == pytest.approx(one.scaled + one.position, abs=1e-6)


def test_edited_scores_and_weights_are_those_that_are_shown() -> None:
    model = build(preset("gpt2", vocab_size=20, d_model=16, n_layers=2, n_heads=2), seed=0).eval()

    def more(scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, 1, 5, 2] += 3.0
        scores[:, 1, 4, 2] = torch.finfo(scores.dtype).min
        return scores

    changes = {"decoder.layers.0.attention.scores": more, "decoder.layers.0.attention.weights": lambda w: 0.5 * w}
    with intervene(model, changes), tap.record_attention() as requests, torch.no_grad():
        model(torch.arange(7)[None])
    layer = layer_weights([requests[0]], 0, range(7), range(7))
    one = score_breakdown(layer, 1, 5, 2, ("a", "b"), model)
    assert one.score_edit == pytest.approx(3.0, abs=1e-6)
    assert one.score == pytest.approx(one.scaled + one.score_edit, abs=1e-6)
    assert one.weight == pytest.approx(0.5 * one.weight_before) == pytest.approx(float(layer.weights[1, 5, 2]))
    assert one.weight_before == pytest.approx(math.exp(one.score) / sum(map(math.exp, one.row_scores)), rel=1e-5)
    assert "intervention on the score: +3" in str(one) and f"{one.weight_before:.6f} before" in str(one)
    hidden = score_breakdown(layer, 1, 4, 2, ("a", "b"), model)
    assert hidden.weight == 0 and hidden.score_edit is None
    json.dumps(hidden.to_json(), allow_nan=False)
    other = score_breakdown(layer_weights([requests[1]], 1, range(7), range(7)), 1, 5, 2, ("a", "b"), model)
    assert other.score_edit is None and other.weight_before is None
