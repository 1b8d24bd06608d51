"""Block-sparse attention in bf16 in C++ on CPUs with AMX, in blocks of 64 queries and 64 keys: calls of the kernels."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import BFloat16, Float, Int
from torch import Tensor

from .. import buffers
from .block_sparse import BlockPlan, empty_results, pointers, sizes_of, skips_strips
from .compiler import available, library
from .structures import MatrixUnitPlan, MatrixUnitSizes

WIDEST = 256  # the largest width of heads
# Whether the kernels should work here; known before they are built, and while a graph is traced.
LIKELY = bool(getattr(torch.cpu, "_is_amx_tile_supported", bool)()) and available("bf16_amx")


@dataclass(frozen=True, eq=False)
class Marks:
    """A query sees only keys with its mark: (1 or B, T) and (1 or B, S), on the CPU."""

    queries: Int[Tensor, "A T"]
    keys: Int[Tensor, "A S"]


@cache
def ready() -> bool:
    """Whether the kernels are there, built if they weren't yet, and this process may use AMX."""
    kernels = library("bf16_amx")
    return kernels is not None and bool(kernels.qkv_ready())


def fits(q: Tensor, k: Tensor, v: Tensor, scale: float) -> bool:
    """Whether the kernels, if they are available, take these widths, dtypes and scale."""
    if not LIKELY or scale <= 0:
        return False
    return all(x.dtype == torch.bfloat16 and x.device.type == "cpu" and x.shape[3] <= WIDEST for x in (q, k, v))


def serves(q: Tensor, k: Tensor, v: Tensor, scale: float) -> bool:
    """Whether the kernels serve these: `fits`, and this process may use AMX."""
    return fits(q, k, v, scale) and ready()


def forward(
    q: BFloat16[Tensor, "B T H D"],
    k: BFloat16[Tensor, "B S K D"],
    v: BFloat16[Tensor, "B S K E"],
    plan: BlockPlan,
    marks: Marks | None,
    scale: float,
) -> tuple[BFloat16[Tensor, "B T H E"], Float[Tensor, "B T H"]] | None:
    """Output, and log-sum-exp in fp32; 0 and −∞ for queries that see nothing.

    None if masked keys or values may not be finite, because 0 · NaN is NaN.
    """
    q, k, v = (buffers.by_rows(x) for x in (q, k, v))
    out, lse = empty_results(q, v, plan, q.dtype)
    return (out, lse) if _call("qkv_forward", [q, k, v, out, lse], (q, k, v, out), plan, marks, scale) else None


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    d_out: Tensor,
    d_lse: Tensor | None,
    plan: BlockPlan,
    marks: Marks | None,
    scale: float,
) -> tuple[Tensor, ...] | None:
    """dQ, dK and dV, from the results of `forward` and their gradients; None if `forward` returns None."""
    q, k, v, d_out = (buffers.by_rows(x) for x in (q, k, v, d_out.to(q.dtype)))
    results = [out.contiguous(), lse.float().contiguous(), d_out, None if d_lse is None else d_lse.float().contiguous()]
    grads = [torch.empty(x.shape, dtype=x.dtype, device="cpu") for x in (q, k, v)]
    if skips_strips(plan, q):
        grads[0].zero_()
    tensors = [q, k, v, *results, *grads]
    return tuple(grads) if _call("qkv_backward", tensors, (q, k, v, d_out), plan, marks, scale) else None


def _call(
    name: str,
    tensors: list[Tensor | None],
    strided: tuple[Tensor, Tensor, Tensor, Tensor],
    plan: BlockPlan,
    marks: Marks | None,
    scale: float,
) -> bool:
    kernels = library("bf16_amx")
    assert kernels is not None and plan.order is None
    buffers.check(name, *tensors)
    sizes = MatrixUnitSizes(*sizes_of(*strided), len(plan.number), scale, torch.get_num_threads())
    parts: list[Tensor | None] = [plan.number, plan.ends, plan.block, plan.table, plan.limits]
    parts += [None, None] if marks is None else [marks.queries, marks.keys]
    rows = [0 if x is None or len(x) == 1 else x.shape[1] for x in parts[5:]]
    fields = MatrixUnitPlan(*pointers(parts), *rows, marks is not None or len(plan.limits) > 0)
    return getattr(kernels, name)(*pointers(tensors), ctypes.byref(fields), ctypes.byref(sizes)) == 0
