"""Keys and values in 8 or 4 bits: groups of tokens as integers with scales, and what stands in their place in a request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

Bits = Literal[4, 8]
Along = Literal["channel", "token"]
SCALES = torch.bfloat16  # two bytes that reach as far as fp32; codes are made for what is left of a scale by rounding


@dataclass(frozen=True, eq=False)
class Codes:
    """N groups of g tokens, x ≈ scale · (code − least code) + base, with one of each for a channel or a token of a group.

    data:  (B, K, N, g, D) int8 with codes −128 … 127; or (B, K, N, g/2, D) uint8 with two codes 0 … 15 in a byte, that of
           token i in the lower half and that of token i + g/2 in the upper.
    scale: (B, K, N, 1, D) along channels, (B, K, N, g, 1) along tokens. base: the same.
    """

    bits: Bits
    data: Int[Tensor, "B K N R D"]
    scale: Tensor
    base: Tensor

    @property
    def group(self) -> int:
        return self.data.shape[3] * (2 if self.bits == 4 else 1)

    @property
    def tokens(self) -> int:
        return self.data.shape[2] * self.group

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.data, self.scale, self.base

    def zero(self) -> Tensor:
        """What code 0 stands for, in fp32."""
        return self.base.float() + (128 * self.scale.float() if self.bits == 8 else 0.0)

    def cut(self, start: int, stop: int) -> Codes:
        """Groups start … stop − 1."""
        data, scale, base = (t[:, :, start:stop] for t in self.tensors())
        return replace(self, data=data, scale=scale, base=base)

    def decoded(self) -> Float[Tensor, "B K S D"]:
        """What the codes stand for, in fp32."""
        return (self.scale.float() * unpacked(self.data, self.bits) + self.zero()).flatten(2, 3)


def unpacked(data: Tensor, bits: Bits) -> Int[Tensor, "… g D"]:
    """Codes one to a byte, int8."""
    if bits == 8:
        return data
    return torch.cat([data & 15, data >> 4], -2).view(torch.int8)


def encode(x: Float[Tensor, "B K S D"], bits: Bits, along: Along, group: int) -> Codes:
    """Codes of whole groups: asymmetric, from the least to the greatest number of each (KIVI, Liu et al. 2024)."""
    groups = x.float().unflatten(2, (-1, group))
    axis, top = (3 if along == "channel" else 4), 2**bits - 1
    low, high = groups.amin(axis, keepdim=True), groups.amax(axis, keepdim=True)
    # Rounded so that the range still holds all numbers, from below and from above.
    base = (low - low.abs() * 2**-8).to(SCALES)
    scale = ((high - base.float()) * (1 + 2**-8) / top).clamp(min=1e-30).to(SCALES)
    codes = ((groups - base.float()) / scale.float()).round_().clamp_(0, top)
    if bits == 8:
        return Codes(bits, (codes - 128).to(torch.int8), scale, base)
    lower, upper = codes.to(torch.uint8).chunk(2, 3)
    return Codes(bits, lower | upper << 4, scale, base)


@dataclass(frozen=True, eq=False)
class Held:
    """Keys, or values, as a quantized cache holds them: codes of the older tokens, then the newest as they are.

    It stands where a tensor (B, S, K, D) would; `dense()` is that tensor.
    """

    codes: Codes
    tail: Float[Tensor, "B K R D"]

    ndim = 4

    @property
    def shape(self) -> tuple[int, int, int, int]:
        b, k, rest, d = self.tail.shape
        return b, self.codes.tokens + rest, k, d

    @property
    def device(self) -> torch.device:
        return self.tail.device

    @property
    def dtype(self) -> torch.dtype:
        return self.tail.dtype

    def dense(self) -> Float[Tensor, "B S K D"]:
        return torch.cat([self.codes.decoded().to(self.tail.dtype), self.tail], 2).transpose(1, 2)
