"""Attention in bf16 over blocks of 64 queries and 64 keys, those that a rule needs, in C++, on CPUs with AMX."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import BFloat16, Float, Int
from torch import Tensor

from .block_sparse import SIDE, BlockPlan, Lies
from .compiler import available, library

WIDEST = 256  # heads are at most so wide
# Known before anything is built, and while a graph is traced.
LIKELY = bool(getattr(torch.cpu, "_is_amx_tile_supported", bool)()) and available("bf16_amx")


@dataclass(frozen=True, eq=False)
class Marks:
    """A query sees keys of its own mark alone: (1 or B, T) and (1 or B, S), on the CPU."""

    queries: Int[Tensor, "A T"]
    keys: Int[Tensor, "A S"]


class _Sizes(ctypes.Structure):
    """The source's `Sizes`."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("batch", "heads", "kv_heads", "queries", "keys", "width", "values")),
        *((name, Lies) for name in ("q", "k", "v", "d_out")),
        *(("strips", ctypes.c_long), ("scale", ctypes.c_float), ("threads", ctypes.c_int)),
    ]


class _Plan(ctypes.Structure):
    """The source's `Plan`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("number", "ends", "block", "table", "limits", "q_marks", "k_marks")),
        *((name, ctypes.c_long) for name in ("q_marks_row", "k_marks_row")),
        ("wary", ctypes.c_int),
    ]


@cache
def ready() -> bool:
    """Whether the kernels are there, built where they aren't yet, and this process may use the tiles."""
    kernels = library("bf16_amx")
    return kernels is not None and bool(kernels.qkv_ready())


def fits(q: Tensor, k: Tensor, v: Tensor, scale: float) -> bool:
    """Whether they are of the kind that the kernels take, where there is a CPU with tiles and a compiler."""
    if not LIKELY or scale <= 0:
        return False
    return all(x.dtype == torch.bfloat16 and x.device.type == "cpu" and x.shape[3] <= WIDEST for x in (q, k, v))


def serves(q: Tensor, k: Tensor, v: Tensor, scale: float) -> bool:
    """Whether the kernels take these: bf16 on a CPU whose tiles this process may use."""
    return fits(q, k, v, scale) and ready()


def forward(
    q: BFloat16[Tensor, "B T H D"],
    k: BFloat16[Tensor, "B S K D"],
    v: BFloat16[Tensor, "B S K E"],
    plan: BlockPlan,
    marks: Marks | None,
    scale: float,
) -> tuple[BFloat16[Tensor, "B T H E"], Float[Tensor, "B T H"]] | None:
    """Output, and log-sum-exp in fp32; 0 and −∞ for what sees nothing.

    None where hidden keys or values may not be finite, which products would show.
    """
    q, k, v = (_plain(x) for x in (q, k, v))
    out = torch.empty(*q.shape[:3], v.shape[3], dtype=q.dtype, device="cpu")
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device="cpu")
    if _leaves_out(plan, q):
        out.zero_()
        lse.fill_(-math.inf)
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
    """dQ, dK and dV, from what `forward` gave and the gradients of that; None as there."""
    q, k, v, d_out = (_plain(x) for x in (q, k, v, d_out.to(q.dtype)))
    beside = [out.contiguous(), lse.float().contiguous(), d_out, None if d_lse is None else d_lse.float().contiguous()]
    made = [torch.empty(x.shape, dtype=x.dtype, device="cpu") for x in (q, k, v)]
    if _leaves_out(plan, q):
        made[0].zero_()
    tensors = [q, k, v, *beside, *made]
    return tuple(made) if _call("qkv_backward", tensors, (q, k, v, d_out), plan, marks, scale) else None


def _leaves_out(plan: BlockPlan, q: Tensor) -> bool:
    """Whether some strips of queries see nothing."""
    return len(plan.number) * SIDE < q.shape[1]


def _plain(x: Tensor) -> Tensor:
    """The numbers of a head side by side."""
    return x if x.stride(3) == 1 else x.contiguous()


def _call(
    name: str,
    tensors: list[Tensor | None],
    lying: tuple[Tensor, Tensor, Tensor, Tensor],
    plan: BlockPlan,
    marks: Marks | None,
    scale: float,
) -> bool:
    kernels = library("bf16_amx")
    assert kernels is not None
    assert plan.order is None
    q, k, v, _ = lying
    lies = (Lies(x.stride(0), x.stride(1), x.stride(2)) for x in lying)
    counts = q.shape[0], q.shape[2], k.shape[2], q.shape[1], k.shape[1], q.shape[3], v.shape[3]
    sizes = _Sizes(*counts, *lies, len(plan.number), scale, torch.get_num_threads())
    parts: list[Tensor | None] = [plan.number, plan.ends, plan.block, plan.table, plan.limits]
    parts += [None, None] if marks is None else [marks.queries, marks.keys]
    rows = [0 if x is None or len(x) == 1 else x.shape[1] for x in parts[5:]]
    wary = marks is not None or len(plan.limits) > 0
    about = _Plan(*(None if x is None else x.data_ptr() for x in parts), *rows, wary)
    pointers = (None if x is None else ctypes.c_void_p(x.data_ptr()) for x in tensors)
    return getattr(kernels, name)(*pointers, ctypes.byref(about), ctypes.byref(sizes)) == 0
