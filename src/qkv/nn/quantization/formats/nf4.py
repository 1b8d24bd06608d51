"""NF4, normal float: 16 levels that weights of a normal distribution take equally often (Dettmers et al. 2023, QLoRA,
arXiv:2305.14314, §3 and appendix E). W ≈ level · max |W| of the group of 64."""

from __future__ import annotations

import torch
from torch import Tensor

from . import nibbles
from .base import Format, Scales

# fmt: off
LEVELS = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)
# fmt: on


class NF4(Format):
    """Indices of the levels, two in a byte."""

    name = "nf4"
    bits = 4
    usual_group = 64

    def fit(self, groups: Tensor, symmetric: bool = True, shrink: float = 1.0) -> Scales:
        scales = groups.abs().amax(-1).float() * shrink
        return torch.where(scales > 0, scales, 1.0), None

    def encode(self, x: Tensor, scales: Tensor, zeros: Tensor | None) -> Tensor:
        levels = torch.tensor(LEVELS, device=x.device)
        return torch.bucketize(x.float() / scales, (levels[1:] + levels[:-1]) / 2).to(torch.uint8)

    def decode(self, codes: Tensor, scales: Tensor, zeros: Tensor | None) -> Tensor:
        return nibbles.look_up(codes, LEVELS).mul_(scales)

    def pack(self, codes: Tensor) -> Tensor:
        return nibbles.pack(codes)

    def unpack(self, stored: Tensor) -> Tensor:
        return nibbles.unpack(stored)
