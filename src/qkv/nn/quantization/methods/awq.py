"""AWQ, activation-aware quantization: inputs with large activations are scaled up in the weights and down before them.

W x = (W diag(s)) (x / s). With s_i = a_i^α, a_i = E|x_i|, α is the one of `ALPHAS` with the smallest error of the
outputs; then the scales of groups are shrunk if that is better still (Lin et al. 2024, arXiv:2306.00978). Whoever calls
this divides x by s: in the norm or the layer that makes x.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ..formats import Format, Packed
from .rtn import with_scales
from .scales import rounded, scales_of

ALPHAS = tuple(i / 20 for i in range(20))


@torch.no_grad()
def factors(
    weights: Sequence[Float[Tensor, "O I"]],
    format: Format,
    groups: Sequence[int],
    symmetric: bool = True,
    *,
    second: Float[Tensor, "I I"] | Sequence[Float[Tensor, "I I"]],
    mean: Float[Tensor, " I"],
) -> Float[Tensor, " I"]:
    """Return s for layers that read the same inputs x, from E[x xᵀ] and E|x|. All ones mean that nothing is better.

    second: of all layers, or of each, times how often it reads.
    """
    seconds = [second] * len(weights) if isinstance(second, Tensor) else second
    best, least = torch.ones_like(mean), float("inf")
    for alpha in ALPHAS:
        s = mean.clamp(min=1e-6) ** alpha
        s = s / (s.max() * s.min()).sqrt()
        error = sum(
            _error(w.float(), s, format, group, symmetric, own)
            for w, group, own in zip(weights, groups, seconds, strict=True)
        )
        if error < least:
            best, least = s, error
    return best


def _error(w: Tensor, s: Tensor, format: Format, group: int, symmetric: bool, second: Tensor) -> float:
    parts = (w * s).unflatten(1, (-1, group))
    difference = rounded(parts, format, format.fit(parts, symmetric)).flatten(1) / s - w
    return float(((difference @ second) * difference).sum())


@torch.no_grad()
def clipped(
    weight: Float[Tensor, "O I"], format: Format, group: int, symmetric: bool = True, *, second: Float[Tensor, "I I"]
) -> Packed:
    """Quantize a matrix by rounding, with scales that are shrunk if the outputs get better."""
    return with_scales(weight, format, group, scales_of(weight, format, group, symmetric, second))
