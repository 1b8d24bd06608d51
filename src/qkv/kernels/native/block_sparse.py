"""Attention over blocks of 64 queries and 64 keys, those that a rule needs, in C++."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .compiler import available, library

SIDE = 64  # queries, and keys, of a block
WIDEST, UNIT = 128, 16  # heads are at most so wide, and by so many numbers


@dataclass(frozen=True, eq=False)
class BlockPlan:
    """Which blocks of keys each strip of queries meets, on the CPU.

    number: of the strips that see something. ends: the entry of `block` before which a strip's begin, and after the last.
    block:  of keys. table: which of the `limits` hides pairs in it, −1 where all are allowed.
    limits: (tables, keys, queries), +∞ where a pair is allowed, −∞ where not. spans: from which query and up to which, by
            sixteens, each sixteen of a table's keys are seen.
    places, kv_places: of each query and key, for scores that fall with distance.
    order:  of which token strips and blocks are made, in place of 0, 1, 2, …
    """

    number: Int[Tensor, " N"]
    ends: Int[Tensor, " N1"]
    block: Int[Tensor, " M"]
    table: Int[Tensor, " M"]
    limits: Float[Tensor, "L 64 64"]
    spans: Int[Tensor, "L 4 2"]
    places: Float[Tensor, " T"]
    kv_places: Float[Tensor, " S"]
    order: Int[Tensor, " T"] | None = None


class Lies(ctypes.Structure):
    """The sources' `Lies`: numbers from one row of the batch, token and head to the next."""

    _fields_ = [(name, ctypes.c_long) for name in ("batch", "row", "head")]


class _Sizes(ctypes.Structure):
    """The source's `Sizes`."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("batch", "heads", "kv_heads", "queries", "keys", "width", "values")),
        *((name, Lies) for name in "qkv"),
        *(("strips", ctypes.c_long), ("scale", ctypes.c_float), ("merges", ctypes.c_int), ("threads", ctypes.c_int)),
    ]


class _Plan(ctypes.Structure):
    """The source's `Plan`."""

    _parts = ("number", "ends", "block", "table", "order", "limits", "spans", "places", "kv_places")
    _fields_ = [(name, ctypes.c_void_p) for name in (*_parts, "slopes")]


def fits(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernels, where they can be had, take heads of these widths in this precision: at most fp32, on the CPU."""
    widths = all(x.shape[3] <= WIDEST and x.shape[3] % UNIT == 0 for x in (q, v))
    return widths and q.device.type == "cpu" and q.dtype != torch.float64 and available("block_sparse")


def serves(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernels take these: as `fits`, and the kernels are there, built where they weren't yet."""
    return fits(q, k, v) and library("block_sparse") is not None


def forward(
    q: Float[Tensor, "B T H D"],
    k: Float[Tensor, "B S K D"],
    v: Float[Tensor, "B S K E"],
    plans: tuple[BlockPlan, ...],
    scale: float,
    slopes: Float[Tensor, " H"] | None = None,
) -> tuple[Float[Tensor, "B T H E"], Float[Tensor, "B T H"]] | None:
    """Output and log-sum-exp in fp32, 0 and −∞ for what sees nothing. Plans that have no pair in common add up. Scores of
    head h fall by slopes[h] times the distance of their places.

    None where a key or value is NaN or infinite: what is hidden would reach those that don't see it.
    """
    given = [_plain(x) for x in (q, k, v)]
    out = torch.empty(*q.shape[:3], v.shape[3], dtype=torch.float32, device="cpu")
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device="cpu")
    if len(plans[0].number) * SIDE < q.shape[1]:  # some strips see nothing of the first plan
        out.zero_()
        lse.fill_(-math.inf)
    done = [_call("qkv_forward", [*given, out, lse], plan, scale, slopes, merges=i > 0) for i, plan in enumerate(plans)]
    return (out, lse) if all(done) else None


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    d_out: Tensor,
    d_lse: Tensor | None,
    plans: tuple[BlockPlan, ...],
    scale: float,
    slopes: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """dQ, dK and dV in fp32, from what `forward` gave and the gradients of that; None where that gives None."""
    given = [_plain(x) for x in (q, k, v)]
    beside = [None if x is None else x.float().contiguous() for x in (out, lse, d_out, d_lse)]
    whole = len(plans[0].number) * SIDE >= q.shape[1]  # else some strips see nothing of the first plan
    d_q = (torch.empty if whole else torch.zeros)(q.shape, dtype=torch.float32, device="cpu")
    d_k, d_v = (torch.zeros(x.shape, dtype=torch.float32, device="cpu") for x in (k, v))
    tensors = [*given, *beside, d_q, d_k, d_v]
    done = [_call("qkv_backward", tensors, plan, scale, slopes, merges=i > 0) for i, plan in enumerate(plans)]
    return (d_q, d_k, d_v) if all(done) else None


def _plain(x: Tensor) -> Tensor:
    """In fp32, the numbers of a head side by side."""
    x = x.float()
    return x if x.stride(3) == 1 else x.contiguous()


def _call(
    name: str, tensors: list[Tensor | None], plan: BlockPlan, scale: float, slopes: Tensor | None, merges: bool
) -> bool:
    kernels = library("block_sparse")
    assert kernels is not None
    q, k, v = (x for x in tensors[:3] if x is not None)
    lies = (Lies(x.stride(0), x.stride(1), x.stride(2)) for x in (q, k, v))
    counts = q.shape[0], q.shape[2], k.shape[2], q.shape[1], k.shape[1], q.shape[3], v.shape[3]
    sizes = _Sizes(*counts, *lies, len(plan.number), scale, merges, torch.get_num_threads())
    parts = *(getattr(plan, name) for name in _Plan._parts), slopes
    about = _Plan(*(None if x is None else x.data_ptr() for x in parts))
    pointers = (None if x is None else ctypes.c_void_p(x.data_ptr()) for x in tensors)
    return bool(getattr(kernels, name)(*pointers, ctypes.byref(about), ctypes.byref(sizes)))
