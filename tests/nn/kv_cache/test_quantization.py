"""Quantized tensors: the error of a number is bounded by its scale."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qkv.nn.kv_cache.quantization import quantize

GROUP = 8


@pytest.mark.parametrize("per", ["channel", "token"])
@pytest.mark.parametrize("bits", [8, 4])
def test_a_number_is_at_most_half_a_step_away(bits: Any, per: Any) -> None:
    """Of the range of its channel in a group, or of its token, with the scales' rounding on top."""
    x = torch.randn(2, 3, 4 * GROUP, 20) * 10 ** torch.linspace(-3, 3, 20) + torch.randn(20) * 50
    codes = quantize(x, bits, per, GROUP)
    groups = x.unflatten(2, (-1, GROUP))
    axis = 3 if per == "channel" else 4
    span = groups.amax(axis, keepdim=True) - groups.amin(axis, keepdim=True)
    slack = groups.abs().amax(axis, keepdim=True) * 2**-6
    away = (codes.dequantize().unflatten(2, (-1, GROUP)) - groups).abs()
    assert (away <= 0.51 * (span + slack) / (2**bits - 1) * (1 + 2**-6) + 1e-6).all()


def test_what_is_constant_stays_nearly_so() -> None:
    x = torch.full((1, 1, GROUP, 4), 3.25)
    assert (quantize(x, 4, "channel", GROUP).dequantize() - x).abs().max() <= 3.25 * 2**-7
    assert torch.equal(quantize(torch.zeros_like(x), 8, "token", GROUP).dequantize(), torch.zeros_like(x))
