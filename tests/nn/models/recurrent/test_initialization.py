"""Uniform initialization: every parameter within the bound, with the deviation bound / √3."""

from __future__ import annotations

import math

import pytest
import torch

import qkv


def test_parameters_are_uniform_within_the_bound() -> None:
    spec = qkv.preset(
        "rnnsearch", vocab_size=50, d_e=16, d_h=16, d_s=16, d_a=8, initialization={"kind": "uniform", "bound": 0.1}
    )
    model = qkv.build(spec, seed=0)
    drawn = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert drawn.abs().max() <= 0.1
    assert float(drawn.std()) == pytest.approx(0.1 / math.sqrt(3), rel=0.02)
