"""Scales of the groups of a matrix: by their largest weight, or with the smallest error of the layer's outputs.

The outputs' error of a group with columns G is d E[x_G x_Gᵀ] dᵀ, where d = Ŵ_G − W_G. Shrunk scales clip the largest weights
and round all others more finely.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..formats import Format
from ..formats.base import Scales

WHOLE = 256  # columns of a group up to which the correlations of its inputs count
SHRINKS = tuple(1 - i / 40 for i in range(17))  # 1 … 0.6


def scales_of(
    weight: Float[Tensor, "O I"],
    format: Format,
    group: int,
    symmetric: bool = True,
    second: Float[Tensor, "I I"] | None = None,
) -> Scales:
    """Return scales (d_out, groups) and zero points. If `second` is given, E[x xᵀ] of the layer's inputs, scales are
    shrunk whenever this reduces the error of the outputs."""
    groups = weight.float().unflatten(1, (-1, group))
    best, best_zeros = format.fit(groups, symmetric)
    if second is None:
        return best, best_zeros
    blocks = _blocks(second.float(), group)
    least = _errors(groups, blocks, format, (best, best_zeros))
    for shrink in SHRINKS[1:]:
        scales, zeros = format.fit(groups, symmetric, shrink)
        errors = _errors(groups, blocks, format, (scales, zeros))
        better = errors < least
        least = torch.where(better, errors, least)
        best = torch.where(better, scales, best)
        best_zeros = None if zeros is None or best_zeros is None else torch.where(better, zeros, best_zeros)
    return best, best_zeros


def _blocks(second: Tensor, group: int) -> Tensor:
    """E[x_G x_Gᵀ] of each group (groups, g, g); of large groups only the diagonals (groups, 1, g)."""
    if group > WHOLE:
        return second.diagonal().view(-1, 1, group)
    return torch.stack([second[i : i + group, i : i + group] for i in range(0, len(second), group)])


def _errors(groups: Tensor, blocks: Tensor, format: Format, scales: Scales) -> Float[Tensor, "O N"]:
    near = rounded(groups, format, scales)
    difference = (near - groups).transpose(0, 1)  # (N, O, g)
    weighted = difference * blocks if blocks.shape[1] == 1 and blocks.shape[2] > 1 else difference @ blocks
    return (weighted * difference).sum(-1).T


def rounded(groups: Tensor, format: Format, scales: Scales) -> Tensor:
    """Return the nearest numbers that the format has for groups with these scales."""
    wide, zeros = scales[0][..., None], None if scales[1] is None else scales[1][..., None]
    return format.decode(format.encode(groups, wide, zeros), wide, zeros)
