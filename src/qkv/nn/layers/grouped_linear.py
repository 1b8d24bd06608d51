"""Grouped linear layers for mixture of experts: one matrix product for each expert, over rows sorted by expert."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.graphs import operator
from ..kernels.plain import in_forward_mode
from ..kernels.products import onednn
from ..quantization.product import counting
from .quantized import QuantizedMatrix


class GroupedLinear(nn.Module):
    """y_r = W_e x_r for the rows r of expert e; W is (n_experts, d_out, d_in), or a `QuantizedMatrix`.

    `into_residual` is for initialization, as in `layers.linear.Linear`.
    """

    def __init__(self, n_experts: int, d_in: int, d_out: int, into_residual: bool = False) -> None:
        super().__init__()
        self.into_residual = into_residual
        self.n_experts, self.d_in, self.d_out = n_experts, d_in, d_out
        self.weight = nn.Parameter(torch.empty(n_experts, d_out, d_in))

    def forward(self, x: Float[Tensor, "R I"], ends: Int[Tensor, " E"]) -> Float[Tensor, "R O"]:
        """Rows are sorted by expert; rows of expert e end before row ends[e]; rows after the last end become zeros."""
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        codes: object = self.weight
        if isinstance(codes, QuantizedMatrix):
            runs = _even(len(x), len(ends)) if counting(codes.codes) else _runs(ends)
            products = [codes.expert(x[start:stop], e) for e, start, stop in runs]
            return torch.cat([*products, x.new_zeros(len(x) - (runs[-1][2] if runs else 0), self.d_out)])
        if in_forward_mode(x, self.weight):
            runs = _runs(ends)
            products = [F.linear(x[start:stop], self.weight[e].to(x.dtype)) for e, start, stop in runs]
            return torch.cat([*products, x.new_zeros(len(x) - (runs[-1][2] if runs else 0), self.d_out)])
        if _has_kernel(x, self.weight):
            return _by_kernel(x, self.weight.to(x.dtype), ends)
        out: Tensor = _products(x, self.weight, ends)
        return out

    def extra_repr(self) -> str:
        return f"{self.n_experts} × {self.d_in} → {self.d_out}"


def _has_kernel(x: Tensor, weight: Tensor) -> bool:
    """Whether PyTorch's fused kernel supports these: bf16, rows of a multiple of 16 bytes, Ampere or later."""
    return (
        x.device.type == "cuda"
        and x.dtype == torch.bfloat16
        and all(size % 8 == 0 for size in weight.shape[1:])
        and torch.cuda.get_device_capability(x.device) >= (8, 0)
    )


def _by_kernel(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """One kernel for all experts, without synchronizing with the host. It leaves rows after the last end, and their
    gradients, uninitialized: both are zeroed here."""
    beyond = (torch.arange(len(x), device=x.device) >= ends[-1])[:, None]
    out = F.grouped_mm(x.masked_fill(beyond, 0), weight.transpose(-2, -1), offs=ends.to(torch.int32))
    return out.masked_fill(beyond, 0)


def _runs(ends: Tensor) -> list[tuple[int, int, int]]:
    """(expert, first row, row after the last) of each expert that has rows."""
    stops = ends.tolist()
    starts = [0, *stops[:-1]]
    return [(e, start, stop) for e, (start, stop) in enumerate(zip(starts, stops, strict=True)) if stop > start]


def _even(rows: int, n_experts: int) -> list[tuple[int, int, int]]:
    """Return `_runs` of rows that are split evenly. Used while memory is counted, when no values are known."""
    ends = [rows * (e + 1) // n_experts for e in range(n_experts)]
    return [(e, start, stop) for e, (start, stop) in enumerate(zip([0, *ends], ends, strict=False)) if stop > start]


@operator("grouped_products")
def _products(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Multiply in the dtype of x. Weights of another dtype are cast expert by expert, so each copy is still in the
    processor's cache when it is multiplied."""
    out = x.new_empty(len(x), weight.shape[1])
    narrow = None if weight.dtype == x.dtype else torch.empty_like(weight[0], dtype=x.dtype)
    last = 0
    for e, start, stop in _runs(ends):
        own = weight[e] if narrow is None else narrow.copy_(weight[e])
        if onednn.serves(x[start:stop], own):
            out[start:stop] = onednn.product(x[start:stop], own)
        else:
            torch.mm(x[start:stop], own.T, out=out[start:stop])
        last = stop
    out[last:].zero_()
    return out


@operator("grouped_outer_products")
def _outer_products(grad: Tensor, x: Tensor, ends: Tensor, dtype: torch.dtype) -> Tensor:
    """Σ_r grad_r x_rᵀ over each expert's rows: (n_experts, d_out, d_in), each cast to `dtype` at once."""
    out = x.new_empty(len(ends), grad.shape[1], x.shape[1], dtype=dtype)
    narrow = None if dtype == x.dtype else torch.empty_like(out[0], dtype=x.dtype)
    with_rows = set()
    for e, start, stop in _runs(ends):
        if narrow is None and onednn.serves(grad[start:stop].T, x[start:stop].T):
            onednn.put_product(out[e], grad[start:stop], x[start:stop])
        else:
            torch.mm(grad[start:stop].T, x[start:stop], out=out[e] if narrow is None else narrow)
        if narrow is not None:
            out[e].copy_(narrow)
        with_rows.add(e)
    for e in set(range(len(ends))) - with_rows:
        out[e].zero_()
    return out


@_products.register_fake
def _(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])


@_outer_products.register_fake
def _(grad: Tensor, x: Tensor, ends: Tensor, dtype: torch.dtype) -> Tensor:
    return x.new_empty(ends.shape[0], grad.shape[1], x.shape[1], dtype=dtype)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x, weight, ends = ctx.saved_tensors
    d_x = _products(grad, weight.transpose(1, 2), ends) if ctx.needs_input_grad[0] else None
    d_weight = _outer_products(grad, x, ends, weight.dtype) if ctx.needs_input_grad[1] else None
    return d_x, d_weight, None


_products.register_autograd(_gradients, setup_context=_setup)
