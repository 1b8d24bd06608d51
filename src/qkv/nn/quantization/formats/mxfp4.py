"""MXFP4: floating-point numbers of 4 bits (E2M1) in groups of 32 that share a power of two (Rouhani et al. 2023,
arXiv:2310.10537; the Open Compute Project's Microscaling Formats 1.0, §5 and §6.3). The exponent of a group is that of its
largest weight minus 2, the largest exponent of E2M1."""

from __future__ import annotations

import torch
from torch import Tensor

from . import nibbles
from .base import Format, Scales

MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # by the three lower bits of a code; the fourth is the sign
BIAS = 127  # of the exponents


class MXFP4(Format):
    """Codes of sign, exponent and mantissa, two in a byte; scales are exponents of 2 plus 127."""

    name = "mxfp4"
    bits = 4
    usual_group = only_group = 32
    scale_dtype = torch.uint8

    def fit(self, groups: Tensor, symmetric: bool = True, shrink: float = 1.0) -> Scales:
        largest = groups.abs().amax(-1).float() * shrink
        exponent = (
            torch.frexp(largest.clamp(min=2.0**-124))[1] - 1
        )  # largest = mantissa · 2^exponent with 1 ≤ mantissa < 2
        return (exponent - 2 + BIAS).clamp(0, 254).to(torch.uint8), None

    def encode(self, x: Tensor, scales: Tensor, zeros: Tensor | None) -> Tensor:
        levels = torch.tensor(MAGNITUDES, device=x.device)
        scaled = x.float() / _powers(scales)
        magnitude = torch.bucketize(scaled.abs(), (levels[1:] + levels[:-1]) / 2)
        return (magnitude + 8 * (scaled < 0)).to(torch.uint8)

    def decode(self, codes: Tensor, scales: Tensor, zeros: Tensor | None) -> Tensor:
        return nibbles.look_up(codes, (*MAGNITUDES, *(-m for m in MAGNITUDES))).mul_(_powers(scales))

    def pack(self, codes: Tensor) -> Tensor:
        return nibbles.pack(codes)

    def unpack(self, stored: Tensor) -> Tensor:
        return nibbles.unpack(stored)


def _powers(scales: Tensor) -> Tensor:
    return torch.exp2(scales.float() - BIAS)
