"""GPTQ: weights are rounded column by column, and what is not rounded yet makes up for the error.

Let H = E[x xᵀ] of the layer's inputs, and U the upper Cholesky factor of H⁻¹. Rounding column j by e = (w_j − ŵ_j) /
U_jj changes the columns k > j by −e U_jk, which minimizes the outputs' error (Frantar et al. 2023, arXiv:2210.17323).
Columns with the largest inputs are rounded first; the scales of all groups are chosen before.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..formats import Format, Packed
from .scales import scales_of

DAMPING = 0.01  # of the mean of H's diagonal, added to the diagonal
BLOCK = 128  # columns whose changes are applied to the rest at once


@torch.no_grad()
def gptq(
    weight: Float[Tensor, "O I"],
    format: Format,
    group: int,
    symmetric: bool = True,
    *,
    second: Float[Tensor, "I I"],
) -> Packed:
    """Quantize a matrix, given `second` = E[x xᵀ] of its inputs. Inputs that are always zero don't count."""
    scales, zeros = scales_of(weight, format, group, symmetric, second)
    first = second.diagonal().argsort(descending=True, stable=True)
    w = weight.float()[:, first]
    upper = _inverse_factor(second.float()[first][:, first])
    groups = first // group
    raw = torch.empty(weight.shape, dtype=torch.uint8, device=w.device)  # fp8 as bytes, too
    for start in range(0, w.shape[1], BLOCK):
        stop = min(start + BLOCK, w.shape[1])
        errors = torch.empty_like(w[:, start:stop])
        for j in range(start, stop):
            s, z = scales[:, groups[j]], None if zeros is None else zeros[:, groups[j]]
            code = format.encode(w[:, j], s, z)
            errors[:, j - start] = (w[:, j] - format.decode(code, s, z)) / upper[j, j]
            w[:, j:stop] -= errors[:, j - start, None] * upper[j, None, j:stop]
            raw[:, first[j]] = code.view(torch.uint8)
        w[:, stop:] -= errors @ upper[start:stop, stop:]
    return format.packed(raw.view(code.dtype), scales, zeros)


def _inverse_factor(second: Tensor) -> Tensor:
    """The upper Cholesky factor of H⁻¹, with growing damping until H is positive definite."""
    diagonal = second.diagonal()
    h = second + torch.diag(torch.where(diagonal > 0, 0.0, 1.0))
    mean = diagonal.mean().clamp(min=1e-12)
    for power in range(6):
        damped = h + DAMPING * 10**power * mean * torch.eye(len(h), device=h.device)
        factor, failed = torch.linalg.cholesky_ex(damped.double())
        if failed:
            continue
        upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(factor), upper=True)
        if not failed:
            return upper.float()
    raise ValueError("the inputs of a layer are not finite, so GPTQ can't be computed; check the calibration data")
