"""Frames of sound as the input of a stack: convolutions over time (Whisper), or over bands and time (Speech-Transformer),
make tokens of log-mel spectrograms."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.layout import Layout
from ...core.spec import Cost
from ..kernels.gelu import gelu
from .convolution import PictureConvolution
from .dropout import dropout
from .embedding import Input, InputModule, real_lengths
from .linear import Linear

WIDTH = 3  # frames that a convolution reads


class Frames(Input, kind="frames"):
    """x₀ = features, xᵢ = gelu(Wᵢ ∗ xᵢ₋₁ + bᵢ): one convolution of 3 frames for each of the `strides`, the first from `mels`
    bands to d_model (Radford et al. 2022). Their product is the number of frames for each token.

    Inputs are (B, mels, frames) with at most `frames` frames. A layout is of the tokens. Padding is zeroed before each
    convolution, so a padded sound whose frames fill its last token gives what it gives alone.

    stem: widths of 3 × 3 convolutions over bands and frames, one for each of the `strides`, instead of convolutions over
          frames. Each halves the bands, and a linear layer makes a token of what is left, as in Dong et al. (2018), but with
          the norm of `layers.convolution`. All bands share the same filters.
    """

    mels: int = Field(default=80, gt=0)
    frames: int = Field(default=3000, gt=0)
    strides: tuple[Annotated[int, Field(gt=0)], ...] = Field(default=(1, 2), min_length=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    stem: tuple[Annotated[int, Field(gt=0)], ...] = ()

    @model_validator(mode="after")
    def _has_widths(self) -> Frames:
        if self.stem and len(self.stem) != len(self.strides):
            raise ValueError(
                f"a stem has one width for each stride: {len(self.strides)} for strides {list(self.strides)}, not "
                f"{len(self.stem)}"
            )
        return self

    @property
    def bands(self) -> tuple[int, ...]:
        """The bands that each convolution of the `stem` reads, and those after the last."""
        return tuple(math.ceil(self.mels / 2**i) for i in range(len(self.stem) + 1))

    def tokens_of(self, length: int) -> int:
        return math.ceil(length / math.prod(self.strides))

    @property
    def tokens(self) -> int:
        """The number of tokens of the longest sound."""
        return self.tokens_of(self.frames)

    @property
    def n_tokens(self) -> int:
        return self.tokens

    def module(self, vocab_size: int, d_model: int) -> FrameEmbedding:
        return FrameEmbedding(self, d_model)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        total, frames = Cost(), tokens * math.prod(self.strides)
        if self.stem:
            for i, (d_in, d_out) in enumerate(zip((1, *self.stem), self.stem, strict=False)):
                frames //= self.strides[i]
                total += PictureConvolution.cost(d_in, d_out, frames * self.bands[i + 1])
            read = self.stem[-1] * self.bands[-1]
            return total + Cost((read + 1) * d_model, 2 * read * d_model * tokens)
        for i, stride in enumerate(self.strides):
            weights = (d_model if i else self.mels) * d_model * WIDTH
            frames //= stride
            total += Cost(weights + d_model, 2 * weights * frames)
        return total


class FrameConvolution(nn.Module):
    """gelu(W ∗ x + b) at every `stride`-th frame; W is a matrix (d_out, 3 · d_in), as initializations expect."""

    def __init__(self, d_in: int, d_out: int, stride: int) -> None:
        super().__init__()
        self.d_in, self.stride = d_in, stride
        self.weight = nn.Parameter(torch.empty(d_out, d_in * WIDTH))
        self.bias = nn.Parameter(torch.empty(d_out))

    def forward(self, x: Float[Tensor, "B C T"]) -> Float[Tensor, "B D S"]:
        weight = self.weight.unflatten(1, (self.d_in, WIDTH))
        return gelu(F.conv1d(x, weight, self.bias, stride=self.stride, padding=WIDTH // 2))


class FrameEmbedding(InputModule):
    """The module of `Frames`."""

    lays: ClassVar[bool] = True
    takes_layout: ClassVar[bool] = True

    def __init__(self, spec: Frames, d_model: int) -> None:
        super().__init__()
        self.spec, self.dropout = spec, spec.dropout
        if spec.stem:
            pairs = zip((1, *spec.stem), spec.stem, spec.strides, strict=False)
            made: list[nn.Module] = [PictureConvolution(d_in, d_out, (2, stride)) for d_in, d_out, stride in pairs]
        else:
            widths = (spec.mels, *(d_model for _ in spec.strides))
            made = [FrameConvolution(d_in, d_model, by) for d_in, by in zip(widths, spec.strides, strict=False)]
        self.convolutions = nn.ModuleList(made)
        self.project = Linear(spec.stem[-1] * spec.bands[-1], d_model, bias=True) if spec.stem else None

    @property
    def weight(self) -> nn.Parameter:  # type: ignore[override]
        weight: nn.Parameter = self.convolutions[0].weight  # type: ignore[assignment]
        return weight

    def lay(
        self, features: Tensor, layout: Layout | None, mask: Tensor | None = None
    ) -> tuple[Float[Tensor, "B mels frames"], Layout]:
        """Return the features and the layout of their tokens, by default of all, or of those that the mask of frames leaves.

        Raises ValueError for features of another shape or of too many frames, and for a layout of other tokens.
        """
        mels, most = self.spec.mels, self.spec.frames
        if not isinstance(features, Tensor) or features.ndim != 3 or features.shape[1] != mels:
            shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise ValueError(f"sounds are (batch, {mels} mel bands, frames), not {shape}")
        frames = features.shape[2]
        if not 0 < frames <= most:
            raise ValueError(f"a sound of {frames:,} frames doesn't fit: this model reads 1 to {most:,}; cut it")
        tokens = self.spec.tokens_of(frames)
        if layout is None and mask is not None:
            lengths = real_lengths(mask, (len(features), frames), "frames")
            layout = Layout.from_lengths([self.spec.tokens_of(n) for n in lengths], tokens, device=features.device)
        layout = Layout.full(tokens, device=features.device) if layout is None else layout
        if layout.shape[1] != tokens:
            raise ValueError(f"{frames:,} frames make {tokens:,} tokens, and the layout has {layout.shape[1]:,}")
        return features, layout

    def forward(
        self,
        features: Float[Tensor, "B mels frames"],
        position: Float[Tensor, "B T M"] | None,
        token_types: Tensor | None = None,
        layout: Layout | None = None,
    ) -> Float[Tensor, "B T M"]:
        x = features.to(self.weight.dtype)
        x = x if self.project is None else x[:, None]  # one channel of bands and frames
        hidden = None if layout is None or layout.padding == "none" else ~layout.valid
        stride = math.prod(self.spec.strides)
        for convolution, by in zip(self.convolutions, self.spec.strides, strict=True):
            if hidden is not None:
                frames = hidden.repeat_interleave(stride, 1)[:, : x.shape[-1]]
                x = x.masked_fill(frames.unflatten(0, (-1, *[1] * (x.ndim - 2))), 0.0)
            x, stride = convolution(x), stride // by
        if self.project is None:
            x = x.mT.contiguous()  # as the kernels of stacks read it
        else:
            x = self.project(x.permute(0, 3, 1, 2).flatten(2))
        x = x if position is None else x + position.to(x.dtype)
        return dropout(x, self.dropout, self.training)
