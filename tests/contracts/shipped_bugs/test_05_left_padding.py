"""Bug 5 of those that others shipped: left padding."""

from __future__ import annotations

import pytest
from axes import positions
from every import call, every_family
from small import (
    ids,
    model,
    same,
    spread,
)

from qkv.core.layout import Layout
from qkv.nn.positions.base import Position


@every_family
@pytest.mark.parametrize("position", [e.value for e in positions()], ids=[e.label for e in positions()])
def test_bug_05_left_padding_does_not_shift_positions(family: str, position: Position) -> None:
    """However much padding stands on the left, the first real token is at position 0."""
    built, tokens = model(family, position=position), ids(1, 5, seed=1)
    wanted = call(built, tokens)
    for width in (6, 11):
        layout = Layout.from_lengths([5], width, "left")
        assert int(layout.positions[0, width - 5]) == 0
        same(call(built, spread([tokens[0]], layout), layout)[:, -5:], wanted)
