from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from qkv.nn.layers.boxes import centered, corners, overlap

SHARES = st.floats(0.01, 0.99)
BOXES = st.tuples(SHARES, SHARES, SHARES, SHARES).map(lambda b: torch.tensor(b, dtype=torch.float64))


def painted(box: Tensor, side: int = 400) -> Tensor:
    """Which places of a fine grid over −1 … 2 a box covers."""
    at = -1 + 3 * (torch.arange(side, dtype=torch.float64) + 0.5) / side
    left, top, right, bottom = box
    return ((at >= top) & (at < bottom))[:, None] & ((at >= left) & (at < right))


@given(BOXES)
def test_there_and_back(box: Tensor) -> None:
    torch.testing.assert_close(centered(corners(box)), box)


@given(BOXES, BOXES)
def test_overlap_is_what_counting_places_gives(a: Tensor, b: Tensor) -> None:
    a, b = corners(a), corners(b)
    iou, giou = overlap(a, b)
    first, second = painted(a), painted(b)
    around = painted(torch.cat([torch.minimum(a, b)[:2], torch.maximum(a, b)[2:]]))
    both, either = (first & second).sum().item(), (first | second).sum().item()
    if either < 400:  # too few places to tell
        return
    assert iou.item() == pytest.approx(both / either, abs=0.08)
    wanted = both / either - (around.sum().item() - either) / around.sum().item()
    assert giou.item() == pytest.approx(wanted, abs=0.08)


def test_overlaps_of_known_boxes() -> None:
    a = torch.tensor([[0.0, 0, 2, 2]])
    b = torch.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3], [3, 0, 5, 2], [0, 0, 1, 1]])
    iou, giou = overlap(a, b)
    assert iou.tolist() == pytest.approx([1, 1 / 7, 0, 1 / 4])
    assert giou.tolist() == pytest.approx([1, 1 / 7 - 2 / 9, -2 / 10, 1 / 4])
