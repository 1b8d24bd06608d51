"""Settings of one call of the Triton kernels: tile sizes, masks and the kind of bias."""

from __future__ import annotations

from typing import NamedTuple

NONE, SLOPES, BUCKETS, DENSE = range(4)  # kinds of bias, as the kernels know them


class KernelSetting(NamedTuple):
    """What a call's kernels are compiled for, besides dtypes and widths. The operator takes it as a list of integers."""

    rows: int  # queries and keys of a tile
    cols: int
    boxes: int  # how many boxes the pattern consists of; −1 where masks are given
    segments: int  # whether segments have to be compared
    per_head: int  # whether masks differ from head to head
    bias: int  # the kind of bias
    trained: int  # whether the bias needs a gradient
