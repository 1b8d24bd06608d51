"""Packed rows: document numbers and document lengths of tokens."""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from ...core.layout import Layout


def document_numbers(layout: Layout) -> Int[Tensor, "B T"] | None:
    """Numbers 0, 1, … < T of the runs of equal segments in each row; None if every row is one document."""
    if layout.segments is None or layout.one_segment:
        return None
    segments = layout.segments
    return F.pad((segments[:, 1:] != segments[:, :-1]).long().cumsum(1), (1, 0))


def document_lengths(layout: Layout) -> Int[Tensor, "B T"]:
    """The length of each token's document so far: its largest position plus one.

    (B or 1, 1) if every row is one document.
    """
    positions = layout.positions[..., 0]
    run = document_numbers(layout)
    if run is None:
        return positions.amax(1, keepdim=True) + 1
    longest = positions.new_zeros(run.shape).scatter_reduce(1, run, positions, "amax")
    return longest.gather(1, run) + 1
