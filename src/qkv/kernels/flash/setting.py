"""What one call's Triton kernels are compiled for: tile sizes, masks and the kind of bias."""

from __future__ import annotations

from typing import NamedTuple

NONE, SLOPES, BUCKETS, DENSE = range(4)  # kinds of bias, as the kernels know them


class Setting(NamedTuple):
    """What a call's kernels are compiled for, besides dtypes and widths. An operator takes it as a list of integers."""

    rows: int  # sides of a tile, in queries and keys
    cols: int
    boxes: int  # how many boxes the pattern is, −1 where masks are given
    segments: int  # whether segments have to be compared
    per_head: int  # whether masks differ from head to head
    bias: int  # its kind
    trained: int  # whether the bias needs its gradient
