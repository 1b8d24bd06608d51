"""Matrices in 8 and 4 bits with a scale for each group of columns, and the floats that they stand for.

    int8:  w[o][i] = scales[o][i / group] · codes[o][i]
    int4:  w[o][i] = scales[o][i / group] · (code of column i − zeros[o][i / group])

A group is `in / scales.shape[1]` columns: with one scale a row, all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, UInt8
from jaxtyping import Int8 as Int8Codes
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Int8:
    """A matrix (out, in) in 8 bits: codes from −128 to 127, scales in fp32."""

    codes: Int8Codes[Tensor, "O I"]
    scales: Float[Tensor, "O G"]

    def __post_init__(self) -> None:
        _check(self.codes, torch.int8, self.codes.shape[-1], self.scales)

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1]

    def rows(self, start: int, stop: int) -> Int8:
        """Some rows, as a view."""
        return Int8(self.codes[start:stop], self.scales[start:stop])

    def dequantize(self) -> Float[Tensor, "O I"]:
        """The matrix in fp32."""
        groups = self.codes.float().unflatten(1, (self.scales.shape[1], -1))
        return (groups * self.scales[..., None]).flatten(1)


@dataclass(frozen=True, eq=False)
class Int4:
    """A matrix (out, in) in 4 bits: a byte holds the code, 0 to 15, of an even column in its lower half and that of the
    next column in its upper half. Scales are in fp32, and so are zeros, the codes that stand for 0: 8 if they are
    None."""

    codes: UInt8[Tensor, "O H"]
    scales: Float[Tensor, "O G"]
    zeros: Float[Tensor, "O G"] | None = None

    def __post_init__(self) -> None:
        _check(self.codes, torch.uint8, 2 * self.codes.shape[-1], self.scales)
        if self.zeros is not None and (self.zeros.shape != self.scales.shape or self.zeros.dtype != torch.float32):
            raise ValueError(
                f"zeros are fp32 and of the shape of scales, {tuple(self.scales.shape)}; these are "
                f"{self.zeros.dtype} {tuple(self.zeros.shape)}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], 2 * self.codes.shape[1]

    def rows(self, start: int, stop: int) -> Int4:
        """Some rows, as a view."""
        zeros = None if self.zeros is None else self.zeros[start:stop]
        return Int4(self.codes[start:stop], self.scales[start:stop], zeros)

    def dequantize(self) -> Float[Tensor, "O I"]:
        """The matrix in fp32."""
        digits = torch.stack([self.codes & 15, self.codes >> 4], -1).flatten(1).float()
        zeros = 8.0 if self.zeros is None else self.zeros[..., None]
        groups = digits.unflatten(1, (self.scales.shape[1], -1))
        return ((groups - zeros) * self.scales[..., None]).flatten(1)


Weight = Tensor | Int8 | Int4


def _check(codes: Tensor, dtype: torch.dtype, columns: int, scales: Tensor) -> None:
    if codes.dtype != dtype or codes.dim() != 2:
        raise ValueError(f"codes are {dtype} of two axes, out and in; these are {codes.dtype} of {codes.dim()}")
    fits = scales.dim() == 2 and len(scales) == len(codes) and scales.shape[1] > 0 and columns % scales.shape[1] == 0
    if not fits or scales.dtype != torch.float32:
        raise ValueError(
            f"scales are fp32 of shape (out, in / group), here ({len(codes)}, a divisor of {columns}); these are "
            f"{scales.dtype} {tuple(scales.shape)}"
        )
    if dtype == torch.uint8 and columns // scales.shape[1] % 2:
        raise ValueError(f"groups of 4-bit codes have an even number of columns, not {columns // scales.shape[1]}")
