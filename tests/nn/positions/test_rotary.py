"""Rotary positions against complex multiplication; scores depend on distance only."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from qkv.core.layout import Layout
from qkv.nn.positions.base import Widths
from qkv.nn.positions.rotary import Rotary

WIDTHS = Widths(d_model=32, n_heads=4, d_head=16, max_positions=64)

ROTARIES = [Rotary(), Rotary(pairs="interleaved"), Rotary(fraction=0.5), Rotary(base=500.0)]


def turned(spec: Rotary, x: Tensor, positions: Tensor) -> Tensor:
    module = spec.module(WIDTHS)
    return module.rotate(x, module.tables(Layout(positions[None])))  # type: ignore[arg-type]


@pytest.mark.parametrize("spec", ROTARIES, ids=str)
def test_rotary_is_complex_multiplication(spec: Rotary) -> None:
    x, positions, width = torch.randn(1, 9, 4, 16, dtype=torch.float64), torch.arange(9), spec.width(16)
    rate = spec.base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = (positions[:, None] * rate)[None, :, None]
    head, kept = x[..., :width], x[..., width:]
    pairs = (head[..., 0::2], head[..., 1::2]) if spec.pairs == "interleaved" else head.chunk(2, -1)
    z = torch.complex(*pairs) * torch.polar(torch.ones_like(angle), angle)
    parts = [z.real, z.imag]
    head = torch.stack(parts, -1).flatten(-2) if spec.pairs == "interleaved" else torch.cat(parts, -1)
    torch.testing.assert_close(turned(spec, x, positions), torch.cat([head, kept], -1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("spec", ROTARIES, ids=str)
def test_rotary_scores_depend_on_the_distance_only(spec: Rotary) -> None:
    q, k = torch.randn(16), torch.randn(16)
    at = torch.arange(0, 90, 10)
    by_distance = [
        (turned(spec, q.expand(1, 9, 1, 16), at) * turned(spec, k.expand(1, 9, 1, 16), at + d)).sum(-1).flatten()
        for d in (0, 1, 13)
    ]
    for scores in by_distance:
        torch.testing.assert_close(scores, scores[:1].expand(9), atol=2e-4, rtol=0)
    assert abs(by_distance[0][0] - by_distance[2][0]) > 1e-2


def test_rotary_turns_in_fp32_whatever_the_dtype() -> None:
    x, far = torch.randn(1, 4, 1, 16).bfloat16(), torch.tensor([3000, 3001, 4093, 4095])
    exact = turned(Rotary(), x.double(), far)
    assert (turned(Rotary(), x, far).double() - exact).abs().max() < 0.02  # a bf16 angle would be off by radians
    assert turned(Rotary(), x, far).dtype == torch.bfloat16


@pytest.mark.parametrize("fraction, width", [(0.3, "4.8|4"), (0.1, "1"), (0.45, "7")])
def test_rotary_needs_pairs(fraction: float, width: str) -> None:
    if int(16 * fraction) % 2 == 0:
        assert Rotary(fraction=fraction).width(16) == int(16 * fraction)
        return
    with pytest.raises(
        ValueError, match=f"fraction {fraction} of d_head 16 is {width} coordinates, which has to be even"
    ):
        Rotary(fraction=fraction).width(16)
