"""Bug 8 of those that others shipped: position precision."""

from __future__ import annotations

import pytest
import torch
from small import (
    randn,
    same,
)

from qkv.core.layout import Layout
from qkv.nn.positions.absolute import Sinusoidal
from qkv.nn.positions.base import Position, Widths
from qkv.nn.positions.rotary import Rotary


@pytest.mark.parametrize(
    "kind", [Rotary(), Rotary(pairs="interleaved"), Sinusoidal()], ids=["half", "interleaved", "sines"]
)
def test_bug_08_positions_are_computed_in_single_precision(kind: Position) -> None:
    """bf16 can't tell position 4096 from 4097: angles have to be fp32 whatever the model's dtype, autocast or not."""
    module = kind.module(Widths(16, 4, 8, None)).to(torch.bfloat16)
    layout = Layout.full(2, start=4096)
    with torch.autocast("cpu", torch.bfloat16):
        made = module.embed(layout), module.tables(layout)
    values = torch.cat([t.flatten(2) for t in (made[1] or (made[0],))], -1)  # type: ignore[union-attr]
    assert values.dtype == torch.float32
    width = 16 if made[1] is None else 8
    rate = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = torch.tensor([4096.0, 4097.0], dtype=torch.float64)[:, None] * rate
    wanted = (
        torch.cat([angle.cos(), angle.sin()], -1) if made[1] else torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
    )
    assert float((values[0] - wanted).abs().max()) < 2e-3
    assert not torch.equal(values[:, 0], values[:, 1])


def test_bug_08_rotary_layouts_are_not_mixed_up() -> None:
    """Pairs i, i + R/2 and pairs 2i, 2i + 1 are one rotation under a permutation of coordinates, and not the same."""
    x, layout, width = randn(1, 6, 2, 8), Layout.full(6, start=3), Widths(16, 2, 8, None)
    half, between = (Rotary(pairs=pairs).module(width) for pairs in ("half", "interleaved"))
    shuffle = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])  # half → interleaved
    turned = half.rotate(x, half.tables(layout))
    same(between.rotate(x[..., shuffle], between.tables(layout)), turned[..., shuffle], 1e-7)
    assert float((between.rotate(x, between.tables(layout)) - turned).abs().max()) > 0.1
    first = torch.polar(
        torch.ones(6, dtype=torch.float64), torch.arange(3, 9, dtype=torch.float64)
    )  # pair 0 turns by p
    same(turned[0, :, 0, [0, 4]], torch.view_as_real(torch.complex(x[0, :, 0, 0], x[0, :, 0, 4]) * first), 1e-6)
