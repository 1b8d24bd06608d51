"""Integers of 8 or 4 bits: W ≈ q · s, or (q − z) · s with a zero point z per group.

Symmetric groups reach from −2^(b−1) to 2^(b−1) − 1, and s = max |W| / (2^(b−1) − ½), so no weight is off by more than
s/2. With zero points, codes reach from the smallest to the largest weight of a group, zero included.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import nibbles
from .base import Format, Scales


class Integer(Format):
    """Base class of the integer formats."""

    has_zeros = True

    def fit(self, groups: Tensor, symmetric: bool = True, shrink: float = 1.0) -> Scales:
        half = 1 << (self.bits - 1)
        if symmetric:
            return _nonzero(groups.abs().amax(-1).float() * shrink / (half - 0.5)), None
        low, high = (groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0))
        scales = _nonzero((high - low).float() * shrink / (2 * half - 1))
        zeros = (-low.float() * shrink / scales).round() - half
        return scales, zeros.clamp(-half, half - 1).to(torch.int8)

    def encode(self, x: Tensor, scales: Tensor, zeros: Tensor | None) -> Tensor:
        half = 1 << (self.bits - 1)
        codes = (x.float() / scales).round_()
        codes = codes if zeros is None else codes.add_(zeros)
        return codes.clamp_(-half, half - 1).to(torch.int8)

    def decode(self, codes: Tensor, scales: Tensor, zeros: Tensor | None) -> Tensor:
        values = codes.to(torch.float32)
        return (values if zeros is None else values.sub_(zeros)).mul_(scales)


class INT8(Integer):
    """Integers −128 … 127, by default with one scale per channel."""

    name = "int8"
    bits = 8
    code_dtype = torch.int8


class INT4(Integer):
    """Integers −8 … 7, stored as q + 8, two in a byte."""

    name = "int4"
    bits = 4
    usual_group = 128

    def pack(self, codes: Tensor) -> Tensor:
        return nibbles.pack((codes + 8).to(torch.uint8))

    def unpack(self, stored: Tensor) -> Tensor:
        return nibbles.unpack(stored).to(torch.int8) - 8


def _nonzero(scales: Tensor) -> Tensor:
    """Scales with 1 in place of 0, for groups of zeros."""
    return torch.where(scales > 0, scales, 1.0)
