"""Products with matrices in fp32 and bf16: those of few rows read the matrix at memory's pace.

    y = x Wᵀ + b,   y[m][o] = Σ_i x[m][i] w[o][i] + b[o]

Sums are in fp32 whatever the dtypes, in an order that doesn't depend on the number of rows.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from ..native import products as native
from .plain import is_plain


def dense_product(
    x: Float[Tensor, "*B I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None = None
) -> Float[Tensor, "*B O"]:
    """`F.linear`, by a C++ kernel where one is faster: on CPUs, for few rows, without gradients and with nothing traced."""
    if x.dtype == weight.dtype and is_plain(x, weight):
        matrices = (native.Matrix(weight, bias),)
        if native.serves(x, matrices):
            return native.products(x, matrices)
    return F.linear(x, weight, bias)
