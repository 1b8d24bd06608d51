"""A waveform as the input of a stack: convolutions over samples, a projection, and a convolution as positions (wav2vec)."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, cast

import torch
from jaxtyping import Bool, Float
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.layout import Layout
from ...core.spec import Cost
from .dropout import dropout
from .embedding import Input, InputModule, real_lengths
from .feedforward import ACTIVATIONS, Activation
from .linear import Linear
from .norm import LayerNorm, NoNorm, Norm

Sizes = tuple[Annotated[int, Field(gt=0)], ...]


class Waveform(Input, kind="waveform"):
    """x₀ = samples, xᵢ = f(normᵢ(Wᵢ ∗ xᵢ₋₁)) without padding, h = W LN(x_n) + b, h + f(P ∗ h) (wav2vec 2.0, Baevski et al.
    2020; HuBERT, Hsu et al. 2021).

    One token stands for as many samples as the product of the `strides`. Inputs are (B, samples), (B, 1, samples), or
    (B, 2, samples) with 1 for samples and 0 for padding in the second row. Features, statistics and positions ignore
    padding, so a padded sound gives the same output as alone.

    widths, kernels, strides: channels, size and stride of each convolution over the samples.
    features: the norm of these convolutions: "group" normalizes each channel of the first over the whole sound, "layer" the
              channels of every convolution.
    positions, groups: samples and groups of the convolution P over tokens, whose weights are normalized (Salimans & Kingma
              2016): for each offset, a length times a direction.
    norm:     of the sum of tokens and positions.
    """

    widths: Sizes = Field(default=(512,) * 7, min_length=1)
    kernels: Sizes = (10, 3, 3, 3, 3, 2, 2)
    strides: Sizes = (5, 2, 2, 2, 2, 2, 2)
    bias: bool = False
    features: Literal["group", "layer"] = "group"
    activation: Activation = "gelu"
    project_norm: bool = True
    projection_dropout: float = Field(default=0.0, ge=0, lt=1)
    positions: int = Field(default=128, gt=0)
    groups: int = Field(default=16, gt=0)
    eps: float = Field(default=1e-5, gt=0)
    norm: Norm = NoNorm()
    dropout: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _alike(self) -> Waveform:
        sizes = [len(self.widths), len(self.kernels), len(self.strides)]
        if len(set(sizes)) > 1:
            raise ValueError(
                f"widths, kernels and strides have one number for each convolution, not {', '.join(map(str, sizes))}"
            )
        return self

    def tokens_of(self, length: int) -> int:
        """The number of tokens of a sound of this many samples."""
        return max(self.lengths_of(length)[-1], 0)

    def lengths_of(self, length: int) -> list[int]:
        """The length after each convolution."""
        lengths = []
        for kernel, stride in zip(self.kernels, self.strides, strict=True):
            length = (length - kernel) // stride + 1
            lengths.append(length)
        return lengths

    @property
    def shortest(self) -> int:
        """Samples of the shortest sound, which makes one token."""
        length = 1
        for kernel, stride in zip(reversed(self.kernels), reversed(self.strides), strict=True):
            length = (length - 1) * stride + kernel
        return length

    def module(self, vocab_size: int, d_model: int) -> WaveformEmbedding:
        if d_model % self.groups:
            raise ValueError(
                f"a convolution of {self.groups} groups over tokens needs them to divide d_model, {d_model}"
            )
        return WaveformEmbedding(self, d_model)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        total, length = Cost(), tokens * math.prod(self.strides)
        for i, (width, kernel, stride) in enumerate(zip(self.widths, self.kernels, self.strides, strict=True)):
            weights, length = (self.widths[i - 1] if i else 1) * width * kernel, length // stride
            normed = self.features == "layer" or i == 0
            total += Cost(weights + width * self.bias + 2 * width * normed, 2 * weights * length)
        last, mixing = self.widths[-1], d_model * d_model // self.groups * self.positions
        total += Cost(last * d_model + d_model, 2 * last * d_model * tokens)
        total += LayerNorm().cost(last, tokens) if self.project_norm else Cost()
        total += Cost(mixing + self.positions + d_model, 2 * mixing * tokens)
        return total + self.norm.cost(d_model, tokens)


class SampleConvolution(nn.Module):
    """f(norm(W ∗ x + b)) at every `stride`-th sample; W is a matrix (d_out, d_in · kernel), as initializations expect."""

    def __init__(self, spec: Waveform, i: int) -> None:
        super().__init__()
        self.d_in, width = spec.widths[i - 1] if i else 1, spec.widths[i]
        self.kernel, self.stride, self.activation = spec.kernels[i], spec.strides[i], ACTIVATIONS[spec.activation]
        self.weight = nn.Parameter(torch.empty(width, self.d_in * self.kernel))
        self.bias = nn.Parameter(torch.empty(width)) if spec.bias else None
        self.over_time = spec.features == "group" and i == 0
        self.norm = LayerNorm().module(width) if spec.features == "layer" or self.over_time else None

    def forward(self, x: Float[Tensor, "B C n"], real: Bool[Tensor, "B 1 m"] | None) -> Float[Tensor, "B D m"]:
        y = F.conv1d(x, self.weight.unflatten(1, (self.d_in, self.kernel)), self.bias, stride=self.stride)
        if self.over_time:
            y = self._over_time(y, real)
        elif self.norm is not None:
            y = self.norm(y.mT).mT
        return self.activation(y)

    def _over_time(self, y: Float[Tensor, "B D m"], real: Bool[Tensor, "B 1 m"] | None) -> Float[Tensor, "B D m"]:
        """Each channel with mean 0 and deviation 1 over the real samples."""
        norm = cast(nn.LayerNorm, self.norm)
        if real is None:
            return F.group_norm(y, y.shape[1], norm.weight, norm.bias)
        count = real.sum(2, keepdim=True).clamp(min=1)
        mean = (y * real).sum(2, keepdim=True) / count
        variance = ((y - mean).square() * real).sum(2, keepdim=True) / count
        scaled = (y - mean) * (variance + 1e-5).rsqrt()
        return scaled * norm.weight[:, None] + norm.bias[:, None]


class TokenConvolution(nn.Module):
    """f(P ∗ h + b) over tokens, zeros beyond both ends; at offset k, P_k = s_k V_k / |V_k|.

    V is a matrix (d_model, d_model / groups · positions). Of an even number of offsets, the last result is left out.
    """

    def __init__(self, spec: Waveform, d_model: int) -> None:
        super().__init__()
        self.size, self.groups, self.activation = spec.positions, spec.groups, ACTIVATIONS[spec.activation]
        self.length = nn.Parameter(torch.empty(spec.positions))
        self.direction = nn.Parameter(torch.empty(d_model, d_model // spec.groups * spec.positions))
        self.bias = nn.Parameter(torch.empty(d_model))

    def initial(self, name: str) -> float | None:
        """The length of directions drawn with deviation 2/√(positions · d_model), as the authors draw them."""
        return (
            2 * math.sqrt(len(self.bias) / (self.groups * self.size))
            if name == "length"
            else 0.0
            if name == "bias"
            else None
        )

    def forward(self, h: Float[Tensor, "B T M"]) -> Float[Tensor, "B T M"]:
        direction = self.direction.unflatten(1, (-1, self.size))
        weight = torch._weight_norm(direction, self.length[None, None], 2)
        y = F.conv1d(h.mT, weight, self.bias, padding=self.size // 2, groups=self.groups)
        return self.activation(y[..., : h.shape[1]]).mT


class WaveformEmbedding(InputModule):
    """The module of `Waveform`."""

    lays: ClassVar[bool] = True
    takes_layout: ClassVar[bool] = True

    def __init__(self, spec: Waveform, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        self.convolutions = nn.ModuleList(SampleConvolution(spec, i) for i in range(len(spec.widths)))
        self.project_norm = LayerNorm(eps=spec.eps).module(spec.widths[-1]) if spec.project_norm else None
        self.project = Linear(spec.widths[-1], d_model)
        self.positions = TokenConvolution(spec, d_model)
        self.norm = spec.norm.module(d_model)

    @property
    def weight(self) -> nn.Parameter:  # type: ignore[override]
        return self.project.weight

    def lay(
        self, samples: Tensor, layout: Layout | None, mask: Tensor | None = None
    ) -> tuple[Float[Tensor, "B C n"], Layout]:
        """Return the samples, with a second row that marks padding if there is some, and the layout of their tokens. `mask`
        is 1 at samples and 0 at padding, which is on the right.

        Raises ValueError for samples of another shape, for a sound too short for a token, and for another layout or mask.
        """
        if not isinstance(samples, Tensor) or samples.ndim not in (2, 3) or not samples.is_floating_point():
            shape = tuple(samples.shape) if isinstance(samples, Tensor) else type(samples).__name__
            raise ValueError(f"sounds are samples as floats, (batch, samples), not {shape}")
        x = samples[:, None] if samples.ndim == 2 else samples
        if x.shape[1] not in (1, 2):
            raise ValueError(f"sounds have one channel, and a mask or none, not {x.shape[1]} channels; average them")
        if mask is not None:
            if x.shape[1] == 2:
                raise ValueError("these sounds have a mask in their second row already; leave mask out")
            real_lengths(mask, (len(x), x.shape[2]), "samples")
            x = torch.cat([x, mask[:, None].to(x.dtype)], 1)
        tokens = self.spec.tokens_of(x.shape[2])
        if not tokens:
            raise ValueError(
                f"a sound of {x.shape[2]:,} samples is too short; this model reads {self.spec.shortest:,} or more"
            )
        if layout is None:
            layout = Layout.full(tokens, device=x.device) if x.shape[1] == 1 else self._layout(x[:, 1], tokens)
        if layout.shape[1] != tokens:
            raise ValueError(f"{x.shape[2]:,} samples make {tokens:,} tokens, and the layout has {layout.shape[1]:,}")
        return x, layout

    def _layout(self, real: Float[Tensor, "B n"], tokens: int) -> Layout:
        lengths = real_lengths(real, (real.shape[0], real.shape[1]), "samples")
        return Layout.from_lengths([self.spec.tokens_of(n) for n in lengths], tokens, device=real.device)

    def forward(
        self,
        samples: Float[Tensor, "B C n"],
        position: Float[Tensor, "B T M"] | None,
        token_types: Tensor | None = None,
        layout: Layout | None = None,
    ) -> Float[Tensor, "B T M"]:
        x = samples[:, :1].to(self.weight.dtype)
        real = self._first_real(samples)
        for convolution in self.convolutions:
            x = convolution(x, real)
        h = x.mT if self.project_norm is None else self.project_norm(x.mT)
        h = dropout(self.project(h), self.spec.projection_dropout, self.training)
        if layout is not None and layout.padding != "none":
            h = h.masked_fill(~layout.valid[..., None], 0.0)
        h = h + self.positions(h)
        h = h if position is None else h + position.to(h.dtype)
        return dropout(self.norm(h), self.spec.dropout, self.training).contiguous()

    def _first_real(self, samples: Float[Tensor, "B C n"]) -> Bool[Tensor, "B 1 m"] | None:
        """Which results of the first convolution are of real samples alone; None if all are."""
        if samples.shape[1] == 1:
            return None
        kernel, stride = self.spec.kernels[0], self.spec.strides[0]
        counts = (samples[:, 1].sum(1).long() - kernel).div(stride, rounding_mode="floor") + 1
        return torch.arange((samples.shape[2] - kernel) // stride + 1, device=samples.device) < counts[:, None, None]
