"""Products with matrices in 8 and 4 bits, whose codes a kernel reads without turning the matrix into floats as a whole.

    y[m][o] = Σ_g scales[o][g] Σ_{i in g} x[m][i] (codes[o][i] − zeros[o][g]) + b[o]

With `activations="float"` x is as it is given. With "int8" each row of x is rounded to 8 bits, with the scale max |x| / 127,
and products are of integers: faster if there are several rows or 4 bits, at an error of at most 0.4 % of a row's largest
number.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..native import products as native
from ..plain import is_plain
from .dense import dense_product
from .formats import Int4, Int8

Activations = Literal["float", "int8"]
WIDEST = 1 << 17  # columns: 127 · 128 times as much is less than 2³¹
BLOCK = 32  # columns in whose multiples groups are, for products of integers
_AT_A_TIME = 1 << 22  # numbers of a matrix that are floats at a time


def int8_product(
    x: Float[Tensor, "*B I"], weight: Int8, bias: Float[Tensor, " O"] | None = None, activations: Activations = "float"
) -> Float[Tensor, "*B O"]:
    """x Wᵀ + b in the dtype of x, for W in 8 bits. Raises ValueError for widths or groups that don't fit."""
    return integer_product(x, weight, bias, activations)


def int4_product(
    x: Float[Tensor, "*B I"], weight: Int4, bias: Float[Tensor, " O"] | None = None, activations: Activations = "float"
) -> Float[Tensor, "*B O"]:
    """x Wᵀ + b in the dtype of x, for W in 4 bits. Raises ValueError for widths or groups that don't fit."""
    return integer_product(x, weight, bias, activations)


def integer_product(
    x: Float[Tensor, "*B I"], weight: Int8 | Int4, bias: Float[Tensor, " O"] | None, activations: Activations
) -> Float[Tensor, "*B O"]:
    check(x, weight, activations)
    if is_plain(x, weight.codes):
        matrices = (matrix_of(weight, bias),)
        if native.serves(x, matrices, activations == "int8"):
            return native.products(x, matrices, activations == "int8")
    return by_floats(rounded(x) if activations == "int8" else x, weight, bias)


def matrix_of(weight: Int8 | Int4, bias: Tensor | None) -> native.Matrix:
    return native.Matrix(weight.codes, bias, weight.scales, weight.zeros if isinstance(weight, Int4) else None)


def check(x: Tensor, weight: Int8 | Int4, activations: Activations) -> None:
    """Raise ValueError for activations that this matrix can't be multiplied with."""
    if x.shape[-1] != weight.shape[1]:
        raise ValueError(f"activations have {x.shape[-1]} columns, and the matrix is for {weight.shape[1]}")
    if activations == "int8" and not has_integer_products(weight):
        unit = f"{BLOCK}, or a multiple of {2 * BLOCK}" if isinstance(weight, Int4) else f"a multiple of {BLOCK}"
        raise ValueError(
            f"activations in int8 need groups of {unit} columns and at most {WIDEST:,} columns; this matrix has groups of "
            f"{weight.shape[1] // weight.scales.shape[1]} and {weight.shape[1]} columns: take activations='float'"
        )


def has_integer_products(weight: Int8 | Int4) -> bool:
    """Whether products with activations in 8 bits can be of integers: groups are whole blocks, and sums fit into 32 bits."""
    group, columns = weight.shape[1] // weight.scales.shape[1], weight.shape[1]
    if columns > WIDEST:
        return False
    if isinstance(weight, Int8):
        return group % BLOCK == 0
    return columns % (2 * BLOCK) == 0 and (group == BLOCK or group % (2 * BLOCK) == 0)


def rounded(x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B I"]:
    """Activations rounded to 8 bits, row by row, as floats."""
    wide = x.float()
    scales = (wide.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-30)
    return ((wide / scales).round() * scales).to(x.dtype)


def by_floats(x: Float[Tensor, "*B I"], weight: Int8 | Int4, bias: Tensor | None) -> Float[Tensor, "*B O"]:
    """The product by PyTorch's operations, some rows of the matrix at a time in fp32."""
    outs, columns = weight.shape
    each = max(1, _AT_A_TIME // columns)
    wide = x.float()
    parts = [dense_product(wide, weight.rows(start, start + each).dequantize()) for start in range(0, outs, each)]
    out = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
    return (out if bias is None else out + bias.float()).to(x.dtype)
