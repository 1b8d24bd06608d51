"""RTN, round to nearest: every weight gets the nearest code. It needs no data."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..formats import Format, Packed
from ..formats.base import Scales
from .scales import scales_of


@torch.no_grad()
def rtn(weight: Float[Tensor, "O I"], format: Format, group: int, symmetric: bool = True) -> Packed:
    """Quantize a matrix by rounding; the largest weight of each group sets its scale."""
    return with_scales(weight, format, group, scales_of(weight, format, group, symmetric))


def with_scales(weight: Float[Tensor, "O I"], format: Format, group: int, scales: Scales) -> Packed:
    """Quantize a matrix by rounding, with these scales."""
    groups = weight.float().contiguous().unflatten(1, (-1, group))
    zeros = None if scales[1] is None else scales[1][..., None]
    codes = format.encode(groups, scales[0][..., None], zeros).flatten(1)
    return format.packed(codes, *scales)
