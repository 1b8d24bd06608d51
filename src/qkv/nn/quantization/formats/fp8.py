"""FP8: floating-point numbers of 8 bits with 4 bits of exponent and 3 of mantissa (E4M3; Micikevicius et al. 2022,
arXiv:2209.05433). W ≈ number · s with s = max |W| / 448, by default one scale per channel."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import Format, Scales

NUMBERS = torch.float8_e4m3fn
LARGEST = 448.0


class FP8(Format):
    """PyTorch's `float8_e4m3fn`."""

    name = "fp8"
    bits = 8
    code_dtype = NUMBERS

    def fit(self, groups: Tensor, symmetric: bool = True, shrink: float = 1.0) -> Scales:
        scales = groups.abs().amax(-1).float() * shrink / LARGEST
        return torch.where(scales > 0, scales, 1.0), None

    def encode(self, x: Tensor, scales: Tensor, zeros: Tensor | None) -> Tensor:
        return (x.float() / scales).clamp(-LARGEST, LARGEST).to(NUMBERS)

    def decode(self, codes: Tensor, scales: Tensor, zeros: Tensor | None) -> Tensor:
        return codes.to(torch.float32) * scales
