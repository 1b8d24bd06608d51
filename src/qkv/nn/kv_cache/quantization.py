"""Quantize keys and values to 8 or 4 bits, in groups of tokens with scales and zero points (KIVI, Liu et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

Bits = Literal[4, 8]
Per = Literal["channel", "token"]
SCALE_DTYPE = torch.bfloat16  # the range of fp32 in two bytes; codes are computed with the rounded scale


@dataclass(frozen=True, eq=False)
class QuantizedTensor:
    """N groups of g tokens: x ≈ scale · (code − smallest code) + zero_point.

    data:       (B, K, N, g, D) int8 with codes −128 … 127, or (B, K, N, g/2, D) uint8 with two codes 0 … 15 a byte: that of
                token i in the lower half, that of token i + g/2 in the upper.
    scale:      (B, K, N, 1, D) per channel, (B, K, N, g, 1) per token.
    zero_point: the smallest value of each group, in the same shape.
    """

    bits: Bits
    data: Int[Tensor, "B K N R D"]
    scale: Tensor
    zero_point: Tensor

    @property
    def group(self) -> int:
        return self.data.shape[3] * (2 if self.bits == 4 else 1)

    @property
    def tokens(self) -> int:
        return self.data.shape[2] * self.group

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.data, self.scale, self.zero_point

    def with_tensors(self, data: Tensor, scale: Tensor, zero_point: Tensor) -> QuantizedTensor:
        return replace(self, data=data, scale=scale, zero_point=zero_point)

    def groups(self, start: int, stop: int) -> QuantizedTensor:
        """Groups start … stop − 1."""
        return self.with_tensors(*(t[:, :, start:stop] for t in self.tensors()))

    def offset(self) -> Tensor:
        """The value of code 0, in fp32."""
        return self.zero_point.float() + (128 * self.scale.float() if self.bits == 8 else 0.0)

    def dequantize(self) -> Float[Tensor, "B K S D"]:
        """The approximated values, in fp32."""
        return (self.scale.float() * unpack(self.data, self.bits) + self.offset()).flatten(2, 3)


def unpack(data: Tensor, bits: Bits) -> Int[Tensor, "… g D"]:
    """One int8 code per byte."""
    if bits == 8:
        return data
    return torch.cat([data & 15, data >> 4], -2).view(torch.int8)


def quantize(x: Float[Tensor, "B K S D"], bits: Bits, per: Per, group: int) -> QuantizedTensor:
    """Quantize whole groups asymmetrically, from the smallest to the largest value of each channel or token."""
    groups = x.float().unflatten(2, (-1, group))
    axis, top = (3 if per == "channel" else 4), 2**bits - 1
    low, high = groups.amin(axis, keepdim=True), groups.amax(axis, keepdim=True)
    # Rounded outwards, so the range still holds every value.
    zero_point = (low - low.abs() * 2**-8).to(SCALE_DTYPE)
    scale = ((high - zero_point.float()) * (1 + 2**-8) / top).clamp(min=1e-30).to(SCALE_DTYPE)
    codes = ((groups - zero_point.float()) / scale.float()).round_().clamp_(0, top)
    if bits == 8:
        return QuantizedTensor(bits, (codes - 128).to(torch.int8), scale, zero_point)
    lower, upper = codes.to(torch.uint8).chunk(2, 3)
    return QuantizedTensor(bits, lower | upper << 4, scale, zero_point)


@dataclass(frozen=True, eq=False)
class QuantizedKV:
    """The keys, or the values, of a quantized cache: older tokens as codes, the newest (`residual`) in full precision.

    Attention takes it in place of a tensor (B, S, K, D), which `dequantize()` returns.
    """

    codes: QuantizedTensor
    residual: Float[Tensor, "B K R D"]

    ndim = 4

    @property
    def shape(self) -> tuple[int, int, int, int]:
        b, k, rest, d = self.residual.shape
        return b, self.codes.tokens + rest, k, d

    @property
    def device(self) -> torch.device:
        return self.residual.device

    @property
    def dtype(self) -> torch.dtype:
        return self.residual.dtype

    def dequantize(self) -> Float[Tensor, "B S K D"]:
        return torch.cat([self.codes.dequantize().to(self.residual.dtype), self.residual], 2).transpose(1, 2)
