"""Weightings, which turn attention scores into weights: soft-max, sigmoid, sparsemax, entmax, ReLU and squared ReLU.

The soft-max has fused kernels. The others are computed by the reference backend, which holds all T·S scores.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from ...core.spec import Spec

Scores = Float[Tensor, "B H T S"]
Mask = Bool[Tensor, "#B #H #T S"] | None


class Weighting(Spec, role="weighting"):
    """A function from scores to weights. To add a kind, subclass it and define `weights`; any attention then takes it:
    `Attention(n_heads=4, weighting="mine")`.
    """

    def weights(self, scores: Scores, mask: Mask) -> Scores:
        """Weights of the pairs that the mask allows (None: all); weights of other pairs are ignored.

        Scores are at least fp32, and the smallest finite number for masked pairs. Weights must not depend on masked pairs,
        or queries would see their keys.
        """
        raise NotImplementedError


class Softmax(Weighting, kind="softmax"):
    """exp(s_i) / Σ_j exp(s_j) (Vaswani et al. 2017)."""

    def weights(self, scores: Scores, mask: Mask) -> Scores:
        return torch.softmax(scores, -1)


class Sigmoid(Weighting, kind="sigmoid"):
    """σ(s_i + b), each key by itself (Ramapuram et al. 2024). b is −log n by default, n the keys that the query may see."""

    bias: float | None = Field(default=None, allow_inf_nan=False)

    def weights(self, scores: Scores, mask: Mask) -> Scores:
        return torch.sigmoid(scores + (-visible(scores, mask).log() if self.bias is None else self.bias))


class ReLU(Weighting, kind="relu"):
    """max(s_i, 0)ᵖ / n, n the keys that the query may see: p = 1 (Wortsman et al. 2023), or 2 (Hua et al. 2022)."""

    power: int = Field(default=1, ge=1)

    def weights(self, scores: Scores, mask: Mask) -> Scores:
        return scores.clamp(min=0).pow(self.power) / visible(scores, mask)


class SquaredReLU(ReLU, kind="squared-relu"):
    """max(s_i, 0)² / n, n the keys that the query may see (Hua et al. 2022)."""

    power: int = Field(default=2, ge=1)


class Entmax(Weighting, kind="entmax"):
    """max((α − 1) s_i − τ, 0)^(1/(α − 1)), with τ such that weights sum to 1: sparse for 1 < α ≤ 2 (Peters et al. 2019)."""

    alpha: float = Field(default=1.5, gt=1, le=2)

    def weights(self, scores: Scores, mask: Mask) -> Scores:
        scores = (self.alpha - 1) * scores
        exponent = 1 / (self.alpha - 1)
        with torch.no_grad():
            tau = self._threshold(scores, exponent)
            slope = (scores - tau).clamp(min=0).pow(exponent - 1) * (scores > tau)  # dτ = Σ slope ds / Σ slope
            slope = slope / slope.sum(-1, keepdim=True)
        tau = tau + (slope * (scores - scores.detach())).sum(-1, keepdim=True)
        return torch.where(scores > tau, scores - tau, 0.0).pow(exponent)

    @staticmethod
    def _threshold(scores: Scores, exponent: float) -> Float[Tensor, "B H T 1"]:
        """τ by bisection: the sum of weights falls from 1 or more at max − 1 to 1 or less at max − n^(−1/exponent)."""
        top = scores.amax(-1, keepdim=True)
        low, width = top - 1, 1 - scores.shape[-1] ** (-1 / exponent)
        for _ in range(52 if scores.dtype == torch.float64 else 26):
            width /= 2
            total = (scores - low - width).clamp(min=0).pow(exponent).sum(-1, keepdim=True)
            low = torch.where(total >= 1, low + width, low)
        return low


class Sparsemax(Entmax, kind="sparsemax"):
    """The Euclidean projection of scores onto the simplex, max(s_i − τ, 0) (Martins & Astudillo 2016): `Entmax` of α = 2."""

    alpha: float = Field(default=2.0, gt=1, le=2)


def visible(scores: Scores, mask: Mask) -> Float[Tensor, "B H T 1"]:
    """How many keys each query may see, at least 1; equal with and without a cache."""
    if mask is None:
        return scores.new_full((1, 1, 1, 1), scores.shape[-1])
    seen = mask.expand(*mask.shape[:-1], scores.shape[-1])  # one column stands for all keys
    return seen.sum(-1, keepdim=True).clamp(min=1).to(scores.dtype)
