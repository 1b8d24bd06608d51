"""Linear layers whose matrix is a product of two of low rank, W ≈ U V, and the factors of a matrix by SVD."""

from __future__ import annotations

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from ...core.spec import Spec
from .linear import Linear, with_weight
from .lora import LoRALinear
from .quantized import QuantizedMatrix

DAMPING = 1e-3  # of the mean variance, added to the variance of each input, so rare directions count a little


class AttentionRanks(Spec):
    """Ranks of an attention layer's projections; None for a full matrix."""

    q: int | None = Field(default=None, gt=0)
    k: int | None = Field(default=None, gt=0)
    v: int | None = Field(default=None, gt=0)
    out: int | None = Field(default=None, gt=0)


class FeedForwardRanks(Spec):
    """Ranks of a feed-forward layer's matrices; None for a full matrix."""

    gate: int | None = Field(default=None, gt=0)
    up: int | None = Field(default=None, gt=0)
    down: int | None = Field(default=None, gt=0)


class LowRankLinear(nn.Module):
    """y = U (V x) + b with V (rank, d_in), which is `reduce`, and U (d_out, rank), which is `expand` and has the bias."""

    def __init__(
        self, d_in: int, d_out: int, rank: int, bias: bool = True, into_residual: bool = False, into_scores: int = 0
    ) -> None:
        super().__init__()
        self.in_features, self.out_features, self.rank = d_in, d_out, rank
        self.reduce = Linear(d_in, rank, bias=False, into_residual=into_residual)
        self.expand = Linear(rank, d_out, bias, into_residual=into_residual, into_scores=into_scores)
        self.reduce.factor_of = self.expand.factor_of = (d_in, rank, d_out)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.expand(self.reduce(x))
        return out

    @torch.no_grad()
    def plain(self) -> Linear:
        """Return a linear layer that computes the same, with the full matrix U V."""
        product = plain(self.expand).weight.double() @ plain(self.reduce).weight.double()
        return with_weight(self.expand, nn.Parameter(product.to(self.expand.weight.dtype)), self.expand.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features} → {self.rank} → {self.out_features}"


def linear(
    d_in: int, d_out: int, bias: bool, rank: int | None, into_residual: bool = False, into_scores: int = 0
) -> Linear | LowRankLinear:
    """Return a linear layer with a full matrix, or with one of low rank if `rank` is not None."""
    if rank is None:
        return Linear(d_in, d_out, bias, into_residual=into_residual, into_scores=into_scores)
    return LowRankLinear(d_in, d_out, rank, bias, into_residual, into_scores)


def plain(layer: Linear | LowRankLinear) -> Linear:
    """Return a plain linear layer that computes the same: the layer itself, or without its adapter, its factors or the codes
    of its weight."""
    if isinstance(layer, LoRALinear | LowRankLinear):
        return layer.plain()
    if not isinstance(layer.weight, QuantizedMatrix):
        return layer
    return with_weight(layer, nn.Parameter(layer.weight.dense(), requires_grad=False), layer.bias)


def matrix_size(d_in: int, d_out: int, rank: int | None) -> int:
    """Number of parameters of a matrix (d_out, d_in), or of its factors: rank · (d_in + d_out)."""
    return d_in * d_out if rank is None else rank * (d_in + d_out)


@torch.no_grad()
def factors(
    weight: Float[Tensor, "O I"], rank: int, covariance: Float[Tensor, "I I"] | None = None
) -> tuple[Float[Tensor, "O R"], Float[Tensor, "R I"]]:
    """Return U and V whose product is nearest to W (Eckart & Young 1936), in the dtype of W.

    They minimize ‖W − U V‖², which then is the sum of σᵢ² over the singular values from the rank on. With the
    `covariance` C = E[x xᵀ] of the layer's inputs, they minimize the mean squared error of its outputs, E‖(W − U V) x‖²
    = ‖(W − U V) C^½‖². It is then the same sum over the singular values of W C^½ (Wang et al. 2024, SVD-LLM,
    arXiv:2403.07378). `DAMPING` is added to C first.

    Raises ValueError for a rank above that of the matrix.
    """
    if rank > min(weight.shape):
        raise ValueError(
            f"a matrix of {' × '.join(map(str, weight.shape))} has a rank of at most {min(weight.shape)}, not {rank}"
        )
    root, inverse = (None, None) if covariance is None else _roots(covariance)
    matrix = weight.double() if root is None else weight.double() @ root
    u, sizes, v = torch.linalg.svd(matrix, full_matrices=False)
    half = sizes[:rank].sqrt()
    left, right = u[:, :rank] * half, half[:, None] * v[:rank]
    right = right if inverse is None else right @ inverse
    return left.to(weight.dtype), right.to(weight.dtype)


def damped(covariance: Float[Tensor, "I I"]) -> Float[Tensor, "I I"]:
    """Return the covariance of inputs with a small part of their mean variance added to each, in fp64."""
    covariance = covariance.double()
    mean = covariance.diagonal().mean().clamp(min=1e-12)
    return covariance + DAMPING * mean * torch.eye(len(covariance), dtype=torch.double, device=covariance.device)


def _roots(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """C^½ and its inverse."""
    values, vectors = torch.linalg.eigh(damped(covariance))
    roots = values.clamp(min=1e-30).sqrt()
    return vectors * roots @ vectors.T, vectors / roots @ vectors.T
