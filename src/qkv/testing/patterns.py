"""Checks of attention patterns alone: `block` against `allowed`, and independence of tensor indices."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.layout import Layout, View
from ..nn.patterns.algebra import Pattern
from ..nn.patterns.intervals import Interval

LENGTH = 24
SIZES = (1, 3, 8)


def allowed(pattern: Pattern, layout: Layout) -> Tensor:
    """The mask (H, T, T) of a layout's first row, for every head until the rule repeats."""
    heads, length = pattern.head_period, layout.shape[1]
    if not pattern.per_head:
        return pattern.allowed(layout.queries(), layout.keys()).expand(1, length, length)
    q, k = (View(*(t.unsqueeze(1) if t.ndim else t for t in view)) for view in (layout.queries(), layout.keys()))
    return pattern.allowed(q, k, torch.arange(heads)[:, None, None]).expand(1, heads, length, length)[0]


def check_blocks(pattern: Pattern) -> None:
    """`block` never calls a block empty that has an allowed pair, or full that lacks one."""
    sized = pattern.over(LENGTH)
    mask = allowed(sized, Layout.full(LENGTH))
    spans = [(start, start + size) for size in SIZES for start in range(0, LENGTH - size + 1, size)]
    for q_low, q_high in spans:
        for k_low, k_high in spans:
            pairs = mask[:, q_low:q_high, k_low:k_high]
            some, every = sized.block(Interval(q_low, q_high - 1), Interval(k_low, k_high - 1))
            where = f"queries {q_low}–{q_high - 1} and keys {k_low}–{k_high - 1}"
            assert bool(some) or not pairs.any(), f"`block` calls {where} empty, but `allowed` allows a pair"
            assert not bool(every) or pairs.all(), f"`block` calls {where} full, but `allowed` forbids a pair"


def check_indices(pattern: Pattern) -> None:
    """Moving tokens to other indices moves the mask with them."""
    sized = pattern.over(LENGTH)
    order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(0))
    moved = allowed(sized, Layout(order[None]))
    expected = allowed(sized, Layout.full(LENGTH))[:, order][:, :, order]
    assert torch.equal(moved, expected), "`allowed` depends on tensor indices; use only positions, segments and roles"
