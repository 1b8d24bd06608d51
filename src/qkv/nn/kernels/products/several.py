"""Products of the same rows with one or several matrices, of any format: queries, keys and values, or gate and up."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from ..native import products as native
from ..plain import is_plain
from .dense import dense_product
from .formats import Int4, Int8, Weight
from .integers import Activations, check, integer_product, matrix_of


def product(
    x: Float[Tensor, "*B I"],
    weight: Weight,
    bias: Float[Tensor, " O"] | None = None,
    activations: Activations = "float",
) -> Float[Tensor, "*B O"]:
    """x Wᵀ + b for a matrix of any format. `activations` is for matrices of 8 and 4 bits."""
    if isinstance(weight, Tensor):
        return dense_product(x, weight, bias)
    return integer_product(x, weight, bias, activations)


def products(
    x: Float[Tensor, "*B I"],
    weights: Sequence[Weight],
    biases: Sequence[Float[Tensor, " O"] | None],
    activations: Activations = "float",
) -> list[Float[Tensor, "*B O"]]:
    """`product` of the same activations with each matrix, in one call of a kernel if they are alike and rows are
    few."""
    first = weights[0]
    codes = [weight if isinstance(weight, Tensor) else weight.codes for weight in weights]
    if _alike(x, weights) and is_plain(x, *codes):
        matrices = [_matrix(weight, bias) for weight, bias in zip(weights, biases, strict=True)]
        integer = activations == "int8" and not isinstance(first, Tensor)
        if native.serves(x, matrices, integer):
            if not isinstance(first, Tensor):
                check(x, first, activations)
            out = native.products(x, matrices, integer)
            return list(out.split([len(matrix.codes) for matrix in matrices], -1))
    return [product(x, weight, bias, activations) for weight, bias in zip(weights, biases, strict=True)]


def _alike(x: Tensor, weights: Sequence[Weight]) -> bool:
    """Whether one call of a kernel serves these matrices: of one format, and with groups of one size."""
    first = weights[0]
    if isinstance(first, Tensor):
        return all(isinstance(w, Tensor) and w.dtype == x.dtype and w.shape[1] == first.shape[1] for w in weights)
    return all(
        isinstance(w, Int8 | Int4) and type(w) is type(first) and w.scales.shape[1] == first.scales.shape[1]
        for w in weights
    )


def _matrix(weight: Weight, bias: Tensor | None) -> native.Matrix:
    return native.Matrix(weight, bias) if isinstance(weight, Tensor) else matrix_of(weight, bias)
