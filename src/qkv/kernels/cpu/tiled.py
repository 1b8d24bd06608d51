"""Attention in O(T + S) memory beyond its inputs, on any device: by PyTorch's fused kernel where nothing is masked, by our
own kernels or by strips where a pattern leaves out much, else by tiles; what a pattern rules out is never touched.

It is one custom operator, so `torch.compile` sees through it as a single node. An operator can receive tensors and
strings: pattern and bias travel in their canonical JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from ...patterns.basic import Causal, Full, Interval, Pattern
from ...positions.base import Bias
from ...positions.bias import ALiBi
from ..native import sparse
from ..plan import first_position, host_interval
from ..request import Request, Result
from . import by_blocks, by_tiles
from .block_sparse import BlockSparse
from .by_blocks import ByBlocks
from .regrouped import Grouping, Regrouped, groupings
from .strips import Plan, make_plan, n_scores, plain_plan
from .tiles import DENSE, Problem, backward, finite, forward, layouts_of, pattern_of, scheme_of

_UNIT = 64  # queries in a strip, and keys in a block
_SPARSE = 0.4  # share of all scores up to which strips are faster than square tiles
_WORTH = 1 << 20  # scores for which our own kernels are called, and built where they aren't yet


def refuses(request: Request) -> str | None:
    return None


def run(request: Request) -> Result:
    given, bias, tensors = request.bias, "", []
    if isinstance(given, Bias) and given.needs_grad and not given.scheme.has_bias_grad:
        given = request.dense_bias()  # autograd does not reach into an operator: made whole out here, it is trained
    if isinstance(given, Bias):
        bias, tensors = given.scheme.text, list(given.tensors)
    elif given is not None:
        bias, tensors = DENSE, [given.reshape((1,) * (4 - given.ndim) + tuple(given.shape))]
    seed = torch.randint(2**31, (), device="cpu") if request.dropout else torch.zeros((), dtype=torch.int64)
    q_layout, k_layout = request.layout, request.kv_layout
    out, lse = _tiled(
        request.q,
        request.k,
        request.v,
        tensors,
        [q_layout.positions, k_layout.positions],
        [q_layout.segments, k_layout.segments, q_layout.roles, k_layout.roles],
        first_position(q_layout),
        first_position(k_layout),
        request.pattern.text,
        bias,
        request.scale,
        request.softcap or 0.0,
        request.dropout,
        seed,
    )
    return (out, lse) if request.return_lse else out


def share(request: Request) -> float:
    """The share of all scores that is computed, as far as the host knows; 1 where it doesn't."""
    planned = _planned(request)[0]
    return density(request) if planned is None else planned


def by_kernel(request: Request) -> bool:
    """Whether our own kernels for CPUs serve a request, as far as the host knows."""
    return _worth(request.q, request.q.shape[1] * request.k.shape[1]) and _planned(request)[1]


def _worth(q: Tensor, n: float) -> bool:
    """Whether `n` scores of each head are enough for our own kernels."""
    return q.shape[0] * q.shape[2] * n >= _WORTH


def _planned(request: Request) -> tuple[float | None, bool]:
    """The share of all scores that plans compute, None where there are none or they aren't made yet; and whether our own
    kernels compute them."""
    bias = request.bias
    falls = isinstance(bias, Bias) and _falls(bias.scheme.text) is not None
    bare = (bias is None or falls) and not request.softcap and not request.dropout
    if not bare or request.q.device.type != "cpu" or torch.compiler.is_compiling() or isinstance(request.q, FakeTensor):
        return None, False

    def found() -> tuple[float | None, bool]:
        q, k, (t, s) = request.layout, request.kv_layout, (request.q.shape[1], request.k.shape[1])
        places, marks = [q.positions, k.positions], [q.segments, k.segments, q.roles, k.roles]
        about = request.pattern, places, marks, first_position(q), first_position(k)
        plans = _plans(*about)
        blocks = _blocks(request.q, request.k, request.v, *about, plans)
        if blocks:
            return by_blocks.share(blocks, t, s), True
        return (None if plans is None or falls else sum(map(n_scores, plans)) / (t * s)), False

    about = f"planned {request.pattern.text} {tuple(request.q.shape[2:])} {request.q.dtype} {falls}"
    return request.plan.once(about, (request.layout, request.kv_layout), found)


def density(request: Request, grid: int = 16) -> float:
    """The share of a coarse grid of blocks that the pattern may allow, as far as the host knows; 1 where it doesn't."""
    q, k = host_interval(request.layout), host_interval(request.kv_layout)
    if q is None or k is None:
        return 1.0

    def share() -> float:
        rows, cols = _coarse(q, grid), _coarse(k, grid)
        return sum(bool(request.pattern.block(r, c)[0]) for r in rows for c in cols) / (len(rows) * len(cols))

    return request.plan.once(f"density {request.pattern.text}", (request.layout, request.kv_layout), share)


def _coarse(interval: Interval, grid: int) -> list[Interval]:
    size = max(64, -(-(interval.high + 1 - interval.low) // grid))
    return [Interval(a, min(a + size - 1, interval.high)) for a in range(interval.low, interval.high + 1, size)]


# -- which way -----------------------------------------------------------------------------------------------------------


def _in_strips(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: list[Tensor],
    marks: list[Tensor | None],
    q_start: int,
    k_start: int,
    rule: Pattern,
    scale: float,
    slopes: Tensor | None,
) -> BlockSparse | Regrouped | ByBlocks | None:
    """The way over strips, or blocks, for rules that leave out much, where it is open; with slopes only over blocks."""
    t, s = q.shape[1], k.shape[1]
    if q.device.type != "cpu":
        return None
    plans = _plans(rule, positions, marks, q_start, k_start)
    few = plans is not None and sum(map(n_scores, plans)) <= _SPARSE * t * s
    blocks = _blocks(q, k, v, rule, positions, marks, q_start, k_start, plans)
    if blocks:
        return ByBlocks(q, k, v, blocks, scale, slopes)
    if slopes is not None or not few or not finite(k, v):
        return None
    assert plans is not None
    groups = _groups(rule, t, s, q_start, k_start)
    if groups:
        return Regrouped(q, k, v, groups, scale)
    layout, kv_layout = layouts_of(positions, marks)
    return BlockSparse(q, k, v, layout, kv_layout, rule, plans[0], scale)


def _plans(
    rule: Pattern, positions: list[Tensor], marks: list[Tensor | None], q_start: int, k_start: int
) -> list[Plan] | None:
    """The plans that together are the rule; None where rows of the batch, or heads, would each need their own."""
    if rule.per_head or any(x is not None and x.shape[0] > 1 for x in (*positions, *marks)):
        return None
    t, s = (x.shape[1] for x in positions)
    if groups := _groups(rule, t, s, q_start, k_start):
        return [group.plan for group in groups]
    if min(q_start, k_start) >= 0:
        return [plain_plan(rule, t, s, q_start, k_start, _UNIT)]
    return [make_plan(rule, *layouts_of(positions, marks), _UNIT)]


def _blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rule: Pattern,
    positions: list[Tensor],
    marks: list[Tensor | None],
    q_start: int,
    k_start: int,
    plans: list[Plan] | None,
) -> tuple[by_blocks.Plans, ...]:
    """The same for our own kernels, where there is enough for them to do: for all rows of the batch, or for each."""
    t, s = q.shape[1], k.shape[1]
    enough = _worth(q, sum(map(n_scores, plans))) if plans is not None else q.shape[2] * t * s >= _WORTH
    if rule.per_head or not enough or not sparse.serves(q, k, v):
        return ()
    if plans is None or min(q_start, k_start) < 0:
        return by_blocks.by_row(rule, positions, marks) or ()
    if _groups(rule, t, s, q_start, k_start):
        regrouped = by_blocks.regrouped(rule, t)
        return () if regrouped is None else (regrouped,)
    one = by_blocks.plain(rule, t, s, q_start, k_start)
    return () if one is None else ((one,),)


def _falls(bias: str) -> ALiBi | None:
    """ALiBi, where that is the bias and our own kernels can add it."""
    scheme = scheme_of(bias) if bias not in ("", DENSE) else None
    return scheme if isinstance(scheme, ALiBi) and scheme.precision == "float32" else None


def _slopes(bias: str, tensors: Sequence[Tensor]) -> Tensor | None:
    """By which each head's scores fall with distance, if that is the bias."""
    scheme = _falls(bias)
    return None if scheme is None else (tensors[0] * scheme.scale).float().contiguous()


def _groups(rule: Pattern, t: int, s: int, q_start: int, k_start: int) -> tuple[Grouping, ...]:
    return groupings(rule, t, _UNIT) if t == s and q_start == k_start >= 0 else ()


def _fused(
    q: Tensor, k: Tensor, v: Tensor, q_start: int, k_start: int, rule: Pattern, scale: float
) -> tuple[Tensor, Tensor] | None:
    """PyTorch's own kernel for CPUs, which gives the log-sum-exp too, where it needs no mask: for all pairs, and for the
    lower triangle."""
    same = q_start == k_start and q.shape[1] == k.shape[1]
    causal = isinstance(rule, Causal) and same
    if q.device.type != "cpu" or min(q_start, k_start) < 0 or not (isinstance(rule, Full) or causal):
        return None
    if q.shape[2:] != k.shape[2:] or q.shape[2:] != v.shape[2:] or (causal and not finite(k, v)):
        return None
    heads_first = (x.transpose(1, 2) for x in (q, k, v))
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*heads_first, 0.0, causal, scale=scale)
    return out.transpose(1, 2).contiguous(), lse.contiguous()


# -- the operator -------------------------------------------------------------------------------------------------------


@torch.library.custom_op("qkv::tiled", mutates_args=())
def _tiled(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensors: list[Tensor],
    positions: list[Tensor],
    marks: list[Tensor | None],
    q_start: int,
    k_start: int,
    pattern: str,
    bias: str,
    scale: float,
    softcap: float,
    dropout: float,
    seed: Tensor,
) -> tuple[Tensor, Tensor]:
    if q.numel() and k.numel() and (not bias or _falls(bias)) and not (softcap or dropout):
        rule = pattern_of(pattern)
        narrow = None if bias else by_tiles.find(q, k, v, rule, positions, marks, q_start, k_start, scale)
        made = None if narrow is None else narrow.forward()
        fused = None if bias or made is not None else _fused(q, k, v, q_start, k_start, rule, scale)
        if fused is not None:
            return fused
        if made is None:
            slopes = _slopes(bias, tensors)
            way = _in_strips(q, k, v, positions, marks, q_start, k_start, rule, scale, slopes)
            made = None if way is None else way.forward()
        if made is not None:
            return made[0], made[1].transpose(1, 2).contiguous()
    out = q.new_zeros(*q.shape[:3], v.shape[-1])
    lse = q.new_full(q.shape[:3], float("-inf"), dtype=torch.promote_types(q.dtype, torch.float32))
    if out.numel() and k.numel():
        forward(Problem(q, k, v, tensors, positions, marks, pattern, bias, scale, softcap, dropout, seed), out, lse)
    return out, lse.transpose(1, 2).contiguous()


@_tiled.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    lse = q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.promote_types(q.dtype, torch.float32))
    return q.new_empty(*q.shape[:3], v.shape[-1]), lse


@torch.library.custom_op("qkv::tiled_backward", mutates_args=())
def _tiled_backward(
    out: Tensor,
    lse: Tensor,
    grad_out: Tensor,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensors: list[Tensor],
    positions: list[Tensor],
    marks: list[Tensor | None],
    q_start: int,
    k_start: int,
    pattern: str,
    bias: str,
    scale: float,
    softcap: float,
    dropout: float,
    seed: Tensor,
) -> list[Tensor]:
    if not out.numel() or not k.numel():
        return [torch.zeros_like(t) for t in (q, k, v, *tensors)]
    lse, d_lse = lse.transpose(1, 2), None if grad_lse is None else grad_lse.transpose(1, 2)
    made: tuple[Tensor, ...] | None = None
    if (not bias or _falls(bias)) and not (softcap or dropout):
        rule = pattern_of(pattern)
        narrow = None if bias else by_tiles.find(q, k, v, rule, positions, marks, q_start, k_start, scale)
        made = None if narrow is None else narrow.backward(out, lse, grad_out, d_lse)
        if made is None:
            slopes = _slopes(bias, tensors)
            way = _in_strips(q, k, v, positions, marks, q_start, k_start, rule, scale, slopes)
            made = None if way is None else way.backward(out, lse, grad_out, d_lse)
    given: list[Tensor] = []
    if made is None:
        problem = Problem(q, k, v, tensors, positions, marks, pattern, bias, scale, softcap, dropout, seed)
        d_q, d_k, d_v, d_bias = backward(problem, out, lse, grad_out, d_lse)
        given = [torch.zeros_like(t) if d is None else d for d, t in zip(d_bias, tensors, strict=True)]
    else:
        (d_q, d_k, d_v), given = made, [torch.zeros_like(t) for t in tensors]
    return [*(d.to(x.dtype).contiguous() for d, x in ((d_q, q), (d_k, k), (d_v, v))), *given]


@_tiled_backward.register_fake
def _(
    out: Tensor,
    lse: Tensor,
    g: Tensor,
    gl: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensors: list[Tensor],
    *_: Any,
) -> list[Tensor]:
    return [torch.empty_like(q), k.new_empty(k.shape), v.new_empty(v.shape), *(torch.empty_like(t) for t in tensors)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, tensors, positions, marks, *rest, seed = inputs
    ctx.save_for_backward(*output, q, k, v, seed, *tensors, *positions, *marks)
    ctx.n_tensors, ctx.rest = len(tensors), rest


def _gradients(ctx: Any, grad_out: Tensor, grad_lse: Tensor | None) -> tuple[Any, ...]:
    out, lse, q, k, v, seed, *more = ctx.saved_tensors
    tensors, positions, marks = more[: ctx.n_tensors], more[ctx.n_tensors :][:2], more[ctx.n_tensors + 2 :]
    grads = torch.ops.qkv.tiled_backward(
        out, lse, grad_out, grad_lse, q, k, v, tensors, positions, marks, *ctx.rest, seed
    )
    # A list that holds a None is one leaf to PyTorch, a list of tensors as many as it has.
    no_marks = [None] * len(marks) if all(mark is not None for mark in marks) else None
    return (*grads[:3], list(grads[3:]), [None] * 2, no_marks, *([None] * len(ctx.rest)), None)


_tiled.register_autograd(_gradients, setup_context=_setup)
