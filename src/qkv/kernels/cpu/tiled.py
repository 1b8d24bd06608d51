"""The `tiled` backend: attention in O(T + S) memory beyond its inputs, on any device, as one operator of PyTorch's.

PyTorch's fused kernel serves where nothing is masked, on CPUs the C++ kernels where they are there, FlashAttention in plain
PyTorch everywhere else. What a pattern rules out is never computed.

`torch.compile` sees the operator as a single node. An operator can receive tensors and strings: pattern and bias travel in
their canonical JSON.
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
from ..plan import first_position, host_interval
from ..request import Request, Result
from . import bf16_amx, block_plan, block_sparse
from .block_plan import Tokens
from .flash_attention import DENSE, Problem, backward, finite, forward, pattern_of, scheme_of, tile_grid


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


def compiled(request: Request) -> bool:
    """Whether the C++ kernels serve a request, as far as the host knows."""
    return _planned(request)[1]


def _planned(request: Request) -> tuple[float | None, bool]:
    """The share of all scores that is computed, None where it isn't planned yet; and whether the C++ kernels do it."""
    alibi = isinstance(request.bias, Bias) and _alibi(request.bias.scheme.text) is not None
    bare = (request.bias is None or alibi) and not request.softcap and not request.dropout
    q, k, v = request.q, request.k, request.v
    if not bare or q.device.type != "cpu" or torch.compiler.is_compiling() or isinstance(q, FakeTensor):
        return None, False

    def plan() -> tuple[float | None, bool]:
        tokens, rule = _tokens(request), request.pattern
        plans = block_sparse.find_plans(q, k, v, rule, tokens)
        if plans is not None:
            return block_plan.share(plans, q.shape[1], k.shape[1]), True
        if alibi or rule.per_head or not tokens.alike:
            return None, False
        grid = tile_grid(rule, *tokens.layouts(), q.shape[0] * q.shape[2], "cpu")
        return min(1.0, grid.visited / (q.shape[1] * k.shape[1])), False

    about = f"planned {request.pattern.text} {tuple(q.shape[2:])} {q.dtype} {alibi}"
    return request.plan.once(about, (request.layout, request.kv_layout), plan)


def _tokens(request: Request) -> Tokens:
    q, k = request.layout, request.kv_layout
    marks = [q.segments, k.segments, q.roles, k.roles]
    return Tokens([q.positions, k.positions], marks, first_position(q), first_position(k))


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


# -- which kernel --------------------------------------------------------------------------------------------------------


def _alibi(bias: str) -> ALiBi | None:
    """ALiBi, where that is the bias and the C++ kernels can add it."""
    scheme = scheme_of(bias) if bias not in ("", DENSE) else None
    return scheme if isinstance(scheme, ALiBi) and scheme.precision == "float32" else None


def _slopes(bias: str, tensors: Sequence[Tensor]) -> Tensor | None:
    """By which each head's scores fall with distance, if that is the bias."""
    scheme = _alibi(bias)
    return None if scheme is None else (tensors[0] * scheme.scale).float().contiguous()


def _fused(
    q: Tensor, k: Tensor, v: Tensor, rule: Pattern, tokens: Tokens, scale: float
) -> tuple[Tensor, Tensor] | None:
    """PyTorch's own kernel for CPUs, which gives the log-sum-exp too, where it needs no mask: for all pairs, and for the
    lower triangle."""
    causal = isinstance(rule, Causal) and tokens.q_start == tokens.k_start and q.shape[1] == k.shape[1]
    if q.device.type != "cpu" or not tokens.known or not (isinstance(rule, Full) or causal):
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
    tokens = Tokens(positions, marks, q_start, k_start)
    if q.numel() and k.numel() and (not bias or _alibi(bias)) and not (softcap or dropout):
        given = q, k, v, pattern_of(pattern), tokens, scale
        amx = None if bias else bf16_amx.find(*given)
        result = None if amx is None else amx.forward()
        fused = None if bias or result is not None else _fused(*given)
        if fused is not None:
            return fused
        if result is None:
            sparse = block_sparse.find(*given, _slopes(bias, tensors))
            result = None if sparse is None else sparse.forward()
        if result is not None:
            return result[0], result[1].transpose(1, 2).contiguous()
    out = q.new_zeros(*q.shape[:3], v.shape[-1])
    lse = q.new_full(q.shape[:3], float("-inf"), dtype=torch.promote_types(q.dtype, torch.float32))
    if out.numel() and k.numel():
        forward(Problem(q, k, v, tensors, tokens, pattern, bias, scale, softcap, dropout, seed), out, lse)
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
    tokens = Tokens(positions, marks, q_start, k_start)
    grads: tuple[Tensor, ...] | None = None
    if (not bias or _alibi(bias)) and not (softcap or dropout):
        given = q, k, v, pattern_of(pattern), tokens, scale
        amx = None if bias else bf16_amx.find(*given)
        grads = None if amx is None else amx.backward(out, lse, grad_out, d_lse)
        if grads is None:
            sparse = block_sparse.find(*given, _slopes(bias, tensors))
            grads = None if sparse is None else sparse.backward(out, lse, grad_out, d_lse)
    d_bias: list[Tensor | None] = [None] * len(tensors)
    if grads is None:
        problem = Problem(q, k, v, tensors, tokens, pattern, bias, scale, softcap, dropout, seed)
        d_q, d_k, d_v, d_bias = backward(problem, out, lse, grad_out, d_lse)
        grads = d_q, d_k, d_v
    of_bias = [torch.zeros_like(t) if d is None else d for d, t in zip(d_bias, tensors, strict=True)]
    return [*(d.to(x.dtype).contiguous() for d, x in zip(grads, (q, k, v), strict=True)), *of_bias]


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
