"""Uninitialized parameters are found: allocated memory holds NaN until something is written to it."""

from __future__ import annotations

import torch
from torch import nn

from qkv.nn.models.unfilled import Unfilled, unfilled


def test_only_what_was_written_counts_as_filled() -> None:
    with Unfilled():
        empty = torch.empty(2, 3)
        similar, new = torch.empty_like(empty), empty.new_empty(4)
        partly = torch.empty(2, 3)
        partly[0] = 1.0
        linear, integers = nn.Linear(3, 2), torch.empty(3, dtype=torch.int64)
    assert all(unfilled(tensor).all() for tensor in (empty, similar, new))
    assert unfilled(partly).tolist() == [[False] * 3, [True] * 3]
    assert not unfilled(linear.weight).any() and not unfilled(linear.bias).any() and integers.dtype == torch.int64
