"""Activation patching: batches of positions equal one patch at a time, and causal models tell where a difference is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qkv.io.families import preset
from qkv.look.analysis import patching
from qkv.look.analysis.patching import activation_patching, logit_difference
from qkv.nn.activations import Patch, intervene, record
from qkv.nn.models.build import build

CLEAN, CORRUPTED = torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([[3, 1, 7, 1, 5]])
METRIC = logit_difference(4, 7)


def decoder() -> nn.Module:
    return build(preset("gpt2", vocab_size=11, d_model=8, n_layers=2, n_heads=2, max_positions=16), seed=0).eval()


def test_equals_one_patch_at_a_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(patching, "ROWS", 2)
    model = decoder()
    result = activation_patching(model, [CLEAN], [CORRUPTED], METRIC)
    with torch.no_grad(), record(model) as at:
        best = float(METRIC(model(CLEAN)))
        worst = float(METRIC(model(CORRUPTED)))
        model(CLEAN)
    for i, name in enumerate(result.names):
        for t in range(5):
            with torch.no_grad(), intervene(model, {name: Patch(at[name], positions=t)}):
                patched = float(METRIC(model(CORRUPTED)))
            assert float(result.effect[i, t]) == pytest.approx((patched - worst) / (best - worst), abs=1e-4)


def test_what_equals_before_the_difference_changes_nothing():
    result = activation_patching(decoder(), [CLEAN], [CORRUPTED], METRIC)
    torch.testing.assert_close(result.effect[:, :2], torch.zeros(2, 2))
    assert float(result.effect[-1, -1]) == pytest.approx(1.0, abs=1e-5)  # the last layer's last position is the output


def test_patching_the_source_of_a_translator():
    model = build(preset("transformer", vocab_size=11, d_model=8, n_layers=2, n_heads=2, d_ff=16), seed=0)
    target = torch.tensor([[1, 2, 3]])
    result = activation_patching(model, [CLEAN, target], [CORRUPTED, target], METRIC, "encoder.layers.*.output")
    assert result.effect.shape == (2, 5)
    assert model.training


def test_texts_that_cannot_be_compared():
    with pytest.raises(ValueError, match="these have 5 and 4 tokens"):
        activation_patching(decoder(), [CLEAN], [CORRUPTED[:, :4]], METRIC)
    with pytest.raises(ValueError, match="the metric is equal"):
        activation_patching(decoder(), [CLEAN], [CLEAN], METRIC)
    with pytest.raises(ValueError, match="no activation 'encoder"):
        activation_patching(decoder(), [CLEAN], [CORRUPTED], METRIC, "encoder.layers.*.output")
