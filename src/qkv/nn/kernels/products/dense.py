"""Products with matrices in fp32 and bf16: products of few rows read the matrix at memory's pace.

    y = x Wᵀ + b,   y[m][o] = Σ_i x[m][i] w[o][i] + b[o]

Sums are in fp32 whatever the dtypes; sums of few rows in an order that doesn't depend on their number. oneDNN computes
large products in fp32 if it is faster.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from ..native import products as native
from ..plain import is_unwatched
from . import onednn


def dense_product(
    x: Float[Tensor, "*B I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None = None
) -> Float[Tensor, "*B O"]:
    """`F.linear`, by other kernels if they are faster, on CPUs with nothing traced: C++ for few rows without gradients,
    oneDNN for large products."""
    if x.dtype == weight.dtype and x.is_cpu and is_unwatched(x, weight):
        matrices = (native.Matrix(weight, bias),)
        if not torch.is_grad_enabled() and native.serves(x, matrices):
            return native.products(x, matrices)
        if x.numel() * weight.shape[0] >= onednn.LEAST and onednn.serves(x, weight):
            out: Tensor = onednn.LinearFunction.apply(x, weight, bias)
            return out
    return F.linear(x, weight, bias)
