"""Normalization of the last axis: LayerNorm, RMSNorm, or none. Statistics are fp32."""

from __future__ import annotations

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.spec import Cost, Spec


class Norm(Spec, role="norm"):
    """Base class of normalizations of vectors of width d."""

    def module(self, d: int) -> nn.Module:
        raise NotImplementedError

    def cost(self, d: int, tokens: int = 0) -> Cost:
        return Cost()


class NoNorm(Norm, kind="none"):
    """The identity."""

    def module(self, d: int) -> nn.Module:
        return nn.Identity()


class LayerNorm(Norm, kind="layernorm"):
    """y = (x − mean) / √(var + eps) · g + b (Ba et al. 2016)."""

    eps: float = Field(default=1e-5, gt=0)
    bias: bool = True

    def module(self, d: int) -> nn.Module:
        return LayerNormalize(self, d)

    def cost(self, d: int, tokens: int = 0) -> Cost:
        return Cost(d * (2 if self.bias else 1), 8 * d * tokens)


class RMSNorm(Norm, kind="rmsnorm"):
    """y = x / √(mean(x²) + eps) · (offset + g), rounded once, at the end (Zhang & Sennrich 2019).

    Gemma has offset 1 and g initialized to 0. T5's layer norm is this norm.
    """

    eps: float = Field(default=1e-6, gt=0)
    offset: float = 0.0

    def module(self, d: int) -> nn.Module:
        return OffsetRMSNormalize(self, d) if self.offset else RMSNormalize(self, d)

    def cost(self, d: int, tokens: int = 0) -> Cost:
        return Cost(d, 4 * d * tokens)


class LayerNormalize(nn.LayerNorm):
    bias: nn.Parameter | None  # type: ignore[assignment]

    def __init__(self, spec: LayerNorm, d: int) -> None:
        nn.Module.__init__(self)  # `nn.LayerNorm` would fill its parameters, which are drawn or read
        self.normalized_shape, self.eps, self.elementwise_affine = (d,), spec.eps, True
        self.weight = nn.Parameter(torch.empty(d))
        self.bias = nn.Parameter(torch.empty(d)) if spec.bias else None

    def initial(self, name: str) -> float:
        return 1.0 if name == "weight" else 0.0

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNormalize(nn.RMSNorm):
    """The module of `RMSNorm` without an offset."""

    eps: float
    offset = 0.0

    def __init__(self, spec: RMSNorm, d: int) -> None:
        nn.Module.__init__(self)
        self.normalized_shape, self.eps, self.elementwise_affine = (d,), spec.eps, True
        self.weight = nn.Parameter(torch.empty(d))

    def initial(self, name: str) -> float:
        return 1.0

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        return _rms_norm(x, self.weight, self.eps)


class OffsetRMSNormalize(nn.Module):
    """The module of `RMSNorm` with an offset, which `torch.nn.RMSNorm` does not have."""

    def __init__(self, spec: RMSNorm, d: int) -> None:
        super().__init__()
        self.eps, self.offset = spec.eps, spec.offset
        self.weight = nn.Parameter(torch.empty(d))

    def initial(self, name: str) -> float:
        return 1.0 - self.offset

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        return _rms_norm(x, self.weight, self.eps, self.offset)


def _rms_norm(x: Tensor, weight: Tensor, eps: float | None, offset: float = 0.0) -> Tensor:
    """Rounded once, at the end."""
    wide = x if x.dtype == torch.float64 else x.float()
    gain = weight.to(wide.dtype)
    return F.rms_norm(wide, weight.shape, gain + offset if offset else gain, eps).to(x.dtype)
