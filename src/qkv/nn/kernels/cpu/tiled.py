"""The `tiled` backend: attention with O(T + S) memory beyond its inputs, on any device, as one custom PyTorch operator.

PyTorch's fused kernel computes requests without a mask; on CPUs, C++ kernels compute sparse patterns and bf16 if they
are available; FlashAttention in plain PyTorch computes the rest. Blocks that a pattern rules out are never computed.

`torch.compile` sees the operator as a single node. An operator takes tensors, numbers and strings, so pattern and bias are
passed as canonical JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from ....core.graphs import operator
from ....core.layout import Layout
from ...patterns.basic import Causal, Full, Interval, Pattern
from ...positions.base import Bias
from ...positions.bias import ALiBi
from ..buffers import by_rows
from ..native.block_sparse import BlockSparseOptions
from ..native.dropout import DropoutMask, WeightPlaces, draw_seed, levels
from ..plain import is_eager
from ..plan import first_position, host_interval, is_aligned_causal, needed_parts
from ..request import Request, Result
from . import bf16_amx, block_plan, block_sparse
from .block_plan import OperatorLayouts, Plans
from .flash_attention import DENSE, TiledProblem, backward, finite, forward, pattern_of, scheme_of, tile_grid


def refuses(request: Request) -> str | None:
    return None


def run(request: Request) -> Result:
    planned = _dropping(request) if request.dropout and _needs_no_operator(request.q, request.k, request.v) else None
    if planned is not None:
        plans, slopes, lengths = planned
        mask = DropoutMask(int(draw_seed()), levels(request.dropout))
        drawn = mask.seed, mask.dropped, mask.row, request.weight_places()
        options = BlockSparseOptions(slopes, lengths, *drawn)
        kernel = block_sparse.BlockSparse(plans, request.scale, options)
        out, lse = _Direct.apply(request.q, request.k, request.v, kernel)
        if out is not None:
            return (out, lse.transpose(1, 2)) if request.return_lse else out
    bias, kind, tensors = request.bias, "", []
    if isinstance(bias, Bias) and bias.needs_grad and not bias.scheme.has_bias_grad:
        bias = request.dense_bias()  # computed here, where autograd sees it
    if isinstance(bias, Bias):
        kind, tensors = bias.scheme.text, list(bias.tensors)
    elif bias is not None:
        kind, tensors = DENSE, [bias.reshape((1,) * (4 - bias.ndim) + tuple(bias.shape))]
    tokens, numbers = _tokens(request), [request.scale, request.softcap or 0.0, request.dropout, 0.0]
    seed, places = torch.zeros((), dtype=torch.int64), None
    if request.dropout:
        seed, of = draw_seed(), request.weight_places()
        places, numbers[3] = of.joined(request.q.shape[1], request.k.shape[1], len(request.q)), of.head
    inputs = request.q, request.k, request.v, tensors, *tokens, places, request.pattern.text, kind, numbers, seed
    out, lse = _tiled(*inputs)
    return (out, lse) if request.return_lse else out


def share(request: Request) -> float:
    """The share of all scores that is computed; 1 if the host can't tell."""
    planned = _planned(request)[0]
    return density(request) if planned is None else planned


def compiled(request: Request) -> bool:
    """Whether C++ kernels serve a request, as far as the host can tell."""
    return _planned(request)[1]


def drops(request: Request) -> bool:
    """Whether the C++ kernels serve a request with dropout, as far as the host can tell."""
    if _needs_no_operator(request.q, request.k, request.v):
        return _dropping(request) is not None
    return _may_drop(request)


def _may_drop(request: Request) -> bool:
    simple = not request.softcap and (request.bias is None or _is_alibi(request.bias)) and not request.pattern.per_head
    return simple and block_sparse.native.fits(request.q, request.k, request.v)


def _needs_no_operator(*tensors: Tensor) -> bool:
    """Whether nothing watches PyTorch's operators, so a kernel may read the tensors directly."""
    return is_eager(*tensors) and not torch._C._len_torch_dispatch_stack()


def _dropping(request: Request) -> tuple[tuple[Plans, ...], Tensor | None, Tensor | None] | None:
    """The plans, ALiBi's slopes and the lengths of rows with which the C++ kernels drop weights; None if they can't, or if
    planning takes longer than the few scores."""
    q, k, v, bias = request.q, request.k, request.v, request.bias

    def find() -> tuple[tuple[Plans, ...], Tensor | None, Tensor | None] | None:
        if not _may_drop(request):
            return None
        tokens = _tokens(request)
        if not tokens.alike and q.shape[2] * q.shape[1] * k.shape[1] < block_sparse.MIN_SCORES:
            return None
        plans = block_sparse.find_plans(q, k, v, request.pattern, tokens, dropping=True)
        return None if plans is None else (plans, None if bias is None else _slopes(bias), tokens.lengths)

    about = (
        f"dropping {request.pattern.text} {request.softcap} {tuple(q.shape)} {tuple(k.shape)} {v.shape[3]} {q.dtype}"
    )
    return request.plan.once(about, (request.layout, request.kv_layout, bias), find)


def _is_alibi(bias: Tensor | Bias) -> bool:
    return isinstance(bias, Bias) and _alibi(bias.scheme.text) is not None


def _planned(request: Request) -> tuple[float | None, bool]:
    """The share of all scores that is computed, None if there is no plan; and whether C++ kernels compute it."""
    alibi = request.bias is not None and _is_alibi(request.bias)
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
        parts = [(part, layout, layout) for part, layout, _ in block_plan.regrouped(rule, tokens)]
        parts = parts or [(rule, *tokens.layouts())]
        visited = sum(tile_grid(*part, q.shape[0] * q.shape[2], "cpu").visited for part in parts)
        return min(1.0, visited / (q.shape[1] * k.shape[1])), False

    about = f"planned {request.pattern.text} {tuple(q.shape[2:])} {q.dtype} {alibi}"
    return request.plan.once(about, (request.layout, request.kv_layout), plan)


def _tokens(request: Request) -> OperatorLayouts:
    """Return the layouts as the operator takes them.

    In causal attention no token sees padding on the right. Such rows are treated as unpadded and share one plan.
    """
    q, k, lengths = request.layout, request.kv_layout, None
    if isinstance(request.pattern, Causal) and q.padding == "right" and q.start is not None and not request.return_lse:
        start, parts = q.start, needed_parts(request.pattern, q, k)
        if is_aligned_causal(parts, q, k):
            q = k = request.plan.once("unpadded", (q,), lambda: Layout.full(q.shape[1], start, q.device))
    if request.dropout and k.padding == "right" and _differ_in_length(q) and _differ_in_length(k):
        lengths = request.plan.once("lengths", (k,), lambda: k.valid.sum(1))
        q, k = (request.plan.once("unpadded", (x,), partial(_unpadded, x)) for x in (q, k))
    marks = [q.segments, k.segments, q.roles, k.roles]
    return OperatorLayouts([q.positions, k.positions], marks, [first_position(q), first_position(k)], lengths)


def _differ_in_length(layout: Layout) -> bool:
    """Whether rows are consecutive tokens of one segment from one position on, and padding to the right."""
    known = layout.sequential and layout.start is not None and layout.roles is None and layout.positions.shape[-1] == 1
    return known and layout.one_segment and layout.padding in ("none", "right")


def _unpadded(layout: Layout) -> Layout:
    return Layout.full(layout.shape[1], layout.start or 0, layout.device)


def density(request: Request, grid: int = 16) -> float:
    """The share of a coarse grid of blocks in which the pattern may allow pairs; 1 if the host can't tell."""
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


OperatorThinning = tuple[DropoutMask, WeightPlaces]
"""The mask of an operator's dropout, and the places of the weights."""


def _thinning(q: Tensor, numbers: list[float], seed: Tensor, places: Tensor | None) -> OperatorThinning | None:
    if not numbers[2]:
        return None
    of = WeightPlaces.parted(places, q.shape[1], int(numbers[3]))
    return DropoutMask(int(seed), levels(numbers[2])), of


# -- which kernel --------------------------------------------------------------------------------------------------------


class Kernel(Protocol):
    """A kernel for one call. Results are None if it can't compute them, and another kernel has to."""

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor] | None:
        """Output (B, T, H, E) and log-sum-exp (B, T, H), of queries, keys and values."""
        ...

    def backward(self, *tensors: Tensor | None) -> tuple[Tensor, ...] | None:
        """dQ, dK and dV, of queries, keys, values, the two results and their gradients."""
        ...


def _kernels(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensors: list[Tensor],
    tokens: OperatorLayouts,
    pattern: str,
    bias: str,
    numbers: list[float],
    thinning: OperatorThinning | None,
) -> Iterator[Kernel | None]:
    """The kernels that may serve a call, the fastest first; None for kernels that don't."""
    scale, softcap = numbers[:2]
    alibi = _alibi(bias)
    if softcap or (bias and alibi is None):
        return
    rule = pattern_of(pattern)
    if alibi is None and thinning is None:
        yield bf16_amx.find(q, k, v, rule, tokens, scale)
        yield None if block_sparse.is_favored(q) else _fused(q, k, v, rule, tokens, scale)
    slopes = None if alibi is None else _scaled(alibi, tensors[0])
    yield block_sparse.find(q, k, v, rule, tokens, scale, slopes, *(thinning or ()))


def _alibi(bias: str) -> ALiBi | None:
    """The bias, if it is ALiBi and the C++ kernels can add it."""
    scheme = scheme_of(bias) if bias not in ("", DENSE) else None
    return scheme if isinstance(scheme, ALiBi) and scheme.precision == "float32" else None


def _slopes(bias: Tensor | Bias | None) -> Tensor | None:
    """ALiBi's slopes, as the kernels take them."""
    alibi = _alibi(bias.scheme.text) if isinstance(bias, Bias) else None
    return None if alibi is None or not isinstance(bias, Bias) else _scaled(alibi, bias.tensors[0])


def _scaled(alibi: ALiBi, slopes: Tensor) -> Tensor:
    return (slopes * alibi.scale).float().contiguous()


def _fused(q: Tensor, k: Tensor, v: Tensor, rule: Pattern, tokens: OperatorLayouts, scale: float) -> Fused | None:
    causal = isinstance(rule, Causal) and tokens.aligned
    if q.device.type != "cpu" or not tokens.known or not (isinstance(rule, Full) or causal):
        return None
    return Fused(causal, scale) if q.shape[2:] == k.shape[2:] == v.shape[2:] else None


@dataclass
class Fused:
    """PyTorch's kernel for CPUs, which also returns the log-sum-exp: for all pairs, or the lower triangle."""

    causal: bool
    scale: float

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor] | None:
        if self.causal and not finite(*tensors[1:]):
            return None
        # Called directly, it takes the widths of all heads for contiguous.
        heads_first = (by_rows(x).transpose(1, 2) for x in tensors)
        fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, lse = fused(*heads_first, 0.0, self.causal, scale=self.scale)
        return out.transpose(1, 2).contiguous(), lse.transpose(1, 2)

    def backward(self, *tensors: Tensor | None) -> None:
        """Left to the other kernels, which are faster."""


def _problems(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensors: list[Tensor],
    tokens: OperatorLayouts,
    pattern: str,
    bias: str,
    numbers: list[float],
    thinning: OperatorThinning | None,
) -> list[tuple[TiledProblem, Tensor | None]]:
    """The problems to be solved in plain PyTorch, and the order of tokens in each if that is another.

    Patterns with gaps are solved part by part, over tokens in an order in which they have none.
    """
    parts = [] if bias or thinning else block_plan.regrouped(pattern_of(pattern), tokens)
    if not parts:
        return [(TiledProblem(q, k, v, tensors, *tokens.layouts(), pattern_of(pattern), bias, numbers, thinning), None)]
    return [
        (TiledProblem(q[:, order], k[:, order], v[:, order], tensors, layout, layout, rule, bias, numbers), order)
        for rule, layout, order in parts
    ]


class _Direct(torch.autograd.Function):
    """A kernel called without the operator. Results are None if it can't compute them."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, kernel: Kernel) -> tuple[Tensor | None, Tensor | None]:
        results = kernel.forward(q, k, v)
        if results is None:
            return None, None
        ctx.save_for_backward(q, k, v, *results)
        ctx.set_materialize_grads(False)
        ctx.kernel = kernel
        return results

    @staticmethod
    def backward(ctx: Any, d_out: Tensor | None, d_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        tensors = q, k, v, out, lse, torch.zeros_like(out) if d_out is None else d_out, d_lse
        again = torch.is_grad_enabled()  # derivatives of the gradients may be wanted
        grads = _Once.apply(ctx.kernel, *tensors) if again else ctx.kernel.backward(*tensors)
        return (*(d.to(x.dtype) for d, x in zip(grads, tensors[:3], strict=True)), None)


class _Once(torch.autograd.Function):
    """The gradients of a kernel, which have no derivatives."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, *tensors: Tensor | None) -> tuple[Tensor, ...] | None:
        return kernel.backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> None:
        raise RuntimeError("attention kernels have no second derivatives; choose backend='reference' for the attention")


# -- the operator -------------------------------------------------------------------------------------------------------


@operator("tiled")
def _tiled(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensors: list[Tensor],
    positions: list[Tensor],
    marks: list[Tensor | None],
    starts: list[int],
    lengths: Tensor | None,
    places: Tensor | None,
    pattern: str,
    bias: str,
    numbers: list[float],
    seed: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the output (B, T, H, E) and log-sum-exp (B, H, T). `numbers` are the scale, soft-cap (0: none), dropout and
    first head. `places` come from `WeightPlaces.joined`."""
    out = q.new_zeros(*q.shape[:3], v.shape[-1])
    lse = q.new_full(q.shape[:3], float("-inf"), dtype=torch.promote_types(q.dtype, torch.float32))
    if not out.numel() or not k.numel():
        return out, lse.transpose(1, 2).contiguous()
    tokens = OperatorLayouts(positions, marks, starts, lengths)
    inputs = q, k, v, tensors, tokens, pattern, bias, numbers, _thinning(q, numbers, seed, places)
    for kernel in _kernels(*inputs):
        result = None if kernel is None else kernel.forward(q, k, v)
        if result is not None:
            return result[0], result[1].transpose(1, 2).contiguous()
    for problem, order in _problems(*inputs):
        if order is None:
            forward(problem, out, lse)
            continue
        part, part_lse = torch.zeros_like(out), torch.full_like(lse, float("-inf"))
        forward(problem, part, part_lse)
        back = order.argsort()
        part, part_lse, before = part[:, back], part_lse[:, back], lse
        lse = torch.logaddexp(before, part_lse)
        shares = [(x - lse).exp().masked_fill(x == float("-inf"), 0.0)[..., None] for x in (before, part_lse)]
        out = (shares[0] * out + shares[1] * part).to(q.dtype)
    return out, lse.transpose(1, 2).contiguous()


@_tiled.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    lse = q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.promote_types(q.dtype, torch.float32))
    return q.new_empty(*q.shape[:3], v.shape[-1]), lse


@operator("tiled_backward")
def _tiled_backward(
    out: Tensor,
    lse: Tensor,
    d_out: Tensor,
    d_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensors: list[Tensor],
    positions: list[Tensor],
    marks: list[Tensor | None],
    starts: list[int],
    lengths: Tensor | None,
    places: Tensor | None,
    pattern: str,
    bias: str,
    numbers: list[float],
    seed: Tensor,
) -> list[Tensor]:
    """The gradients of q, k, v and the bias's tensors."""
    if not out.numel() or not k.numel():
        return [torch.zeros_like(t) for t in (q, k, v, *tensors)]
    results = [out, lse.transpose(1, 2), d_out, None if d_lse is None else d_lse.transpose(1, 2)]
    tokens = OperatorLayouts(positions, marks, starts, lengths)
    thinning = _thinning(q, numbers, seed, places)
    grads = _gradients(results, q, k, v, tensors, tokens, pattern, bias, numbers, thinning)
    pairs = zip(grads, (q, k, v, *tensors), strict=True)
    return [torch.zeros_like(x) if d is None else d.to(x.dtype).contiguous() for d, x in pairs]


def _gradients(results: list[Any], *inputs: Any) -> list[Tensor | None]:
    q, k, v, tensors = inputs[:4]
    for kernel in _kernels(*inputs):
        grads = None if kernel is None else kernel.backward(*inputs[:3], *results)
        if grads is not None:
            return [*grads, *[None] * len(tensors)]
    problems = _problems(*inputs)
    if problems[0][1] is None:
        d_q, d_k, d_v, d_bias = backward(problems[0][0], *results)
        return [d_q, d_k, d_v, *d_bias]
    totals = [torch.zeros_like(x) for x in (q, k, v)]
    for problem, order in problems:
        assert order is not None
        ordered: list[Any] = [None if x is None else x[:, order] for x in results]
        for total, part in zip(totals, backward(problem, *ordered)[:3], strict=True):
            total.index_add_(1, order, part.to(total.dtype))
    return [*totals]


@_tiled_backward.register_fake
def _(*inputs: Any) -> list[Tensor]:
    q, k, v, tensors = inputs[4:8]
    return [torch.empty_like(q), k.new_empty(k.shape), v.new_empty(v.shape), *(torch.empty_like(t) for t in tensors)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, tensors, positions, marks, starts, lengths, places, *rest, seed = inputs
    ctx.save_for_backward(*output, q, k, v, seed, lengths, places, *tensors, *positions, *marks)
    ctx.n_tensors, ctx.starts, ctx.rest = len(tensors), starts, rest


def _autograd(ctx: Any, d_out: Tensor, d_lse: Tensor | None) -> tuple[Any, ...]:
    out, lse, q, k, v, seed, lengths, places, *more = ctx.saved_tensors
    tensors, positions, marks = more[: ctx.n_tensors], more[ctx.n_tensors :][:2], more[ctx.n_tensors + 2 :]
    layouts = positions, marks, ctx.starts, lengths, places
    grads = _tiled_backward(out, lse, d_out, d_lse, q, k, v, tensors, *layouts, *ctx.rest, seed)
    # PyTorch takes a list that contains None as one leaf, and a list of tensors as one leaf for each.
    no_marks = [None] * len(marks) if all(mark is not None for mark in marks) else None
    return (*grads[:3], list(grads[3:]), [None] * 2, no_marks, None, None, None, *([None] * len(ctx.rest)), None)


_tiled.register_autograd(_autograd, setup_context=_setup)
