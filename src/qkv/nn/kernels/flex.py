"""The `flex` backend: FlexAttention (Dong et al. 2024), for which PyTorch compiles a kernel for each pattern.

Pattern, bias and soft-cap are passed to the compiler as functions of one pair, (batch, head, query index, key index); the
block map says which blocks a pattern rules out. CPUs have a forward pass only, and need a C++ compiler.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from functools import lru_cache
from importlib.util import find_spec
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ...core.graphs import untraced
from ...core.layout import Layout
from ..patterns.basic import Pattern
from ..positions.base import Bias
from ..positions.bias import ALiBi, T5Buckets
from . import pairwise
from .block_map import block_map
from .cpu import tiled
from .hidden_nan import may_have_nan
from .plan import same_segment
from .request import Request, Result

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask  # slow to import, so only if it is used

_BLOCK = 128  # queries and keys of a block, as PyTorch's GPU kernels expect
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_WIDTHS = (16, 256)  # widths of heads that fit a GPU's registers and matrix units


@untraced  # decided on the host
def refuses(request: Request) -> str | None:
    q, v = request.q, request.v
    if request.dropout:
        return "FlexAttention has no dropout of attention weights"
    if q.dtype not in _DTYPES:
        return f"its kernels compute in fp32, bf16 and fp16, not in {q.dtype}"
    if q.device.type not in ("cpu", "cuda"):
        return f"it runs on CPUs and CUDA devices, not on {q.device.type}"
    low, high = _WIDTHS
    if q.device.type == "cuda" and not all(low <= x.shape[-1] <= high for x in (q, v)):
        return f"its GPU kernels take head widths of {low} to {high}, not {q.shape[-1]} and {v.shape[-1]}"
    on_cpu = _refuses_on_a_cpu(request) if q.device.type == "cpu" else None
    return (
        on_cpu or _no_compiler(q.device.type) or pairwise.refuses(request.pattern, request.layout.positions.shape[-1])
    )


def _refuses_on_a_cpu(request: Request) -> str | None:
    if _needs_grad(request):
        return "on a CPU it has a forward pass only, and these inputs need gradients"
    if request.return_lse:
        return "its CPU kernel does not return the log-sum-exp"
    if "AVX" not in torch.backends.cpu.get_cpu_capability():
        return "its CPU kernel needs x86 with AVX2, which this machine lacks"
    return None


def _needs_grad(request: Request) -> bool:
    bias = request.bias.tensors if isinstance(request.bias, Bias) else (request.bias,)
    inputs = (request.q, request.k, request.v, *bias)
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)


@lru_cache(maxsize=8)
def _no_compiler(device: str) -> str | None:
    if device == "cuda":
        return None if find_spec("triton") else "its GPU kernels need Triton, which is not installed"
    name = os.environ.get("CXX", "g++")
    return None if shutil.which(name) else f"its CPU kernels need a C++ compiler, and there is no {name}"


@untraced  # it compiles its own kernels
def run(request: Request) -> Result:
    from torch.nn.attention.flex_attention import AuxRequest

    q, k, v = (x.transpose(1, 2) for x in (request.q, request.k, request.v))
    if q.device.type == "cpu":  # PyTorch refuses leaves that need gradients even if none are recorded
        q, k, v = (x.detach() for x in (q, k, v))
    if not (q.numel() and k.numel() and v.numel()):
        return _empty_result(request)
    out, aux = _compiled(_key(request))(
        q,
        k,
        v,
        score_mod=_score_mod(request),
        block_mask=_block_mask(request),
        scale=request.scale,
        enable_gqa=request.n_heads != request.n_kv_heads,
        return_aux=AuxRequest(lse=request.return_lse),
    )
    out = out.transpose(1, 2).to(request.q.dtype)
    if may_have_nan(out):
        return tiled.run(request)  # in which NaN reaches only the queries that see it
    return (out, aux.lse) if request.return_lse else out


def _empty_result(request: Request) -> Result:
    b, t, h, _ = request.q.shape
    out = request.q.new_zeros(b, t, h, request.v.shape[-1])
    return (out, out.new_full((b, h, t), float("-inf"), dtype=torch.float32)) if request.return_lse else out


# -- one kernel for each pattern and shape -----------------------------------------------------------------------------


def _key(request: Request) -> tuple[Any, ...]:
    bias = request.bias
    rule = bias.scheme.text if isinstance(bias, Bias) else None if bias is None else tuple(bias.shape)
    shapes = [(tuple(x.shape), x.dtype, x.device) for x in (request.q, request.k, request.v)]
    places = [
        (tuple(x.positions.shape), x.segments is None, x.roles is None) for x in (request.layout, request.kv_layout)
    ]
    more = (rule, request.scale, request.softcap, request.return_lse, _needs_grad(request))
    return (request.pattern, *places, *shapes, *more)


@lru_cache(maxsize=128)
def _compiled(key: tuple[Any, ...]) -> Callable[..., Any]:
    """A compiled function for each key: with sizes that vary, a CPU kernel is several times slower.

    PyTorch gives up after compiling one code object a few times, so each function is a copy.
    """
    from torch.nn.attention.flex_attention import flex_attention as f

    own = FunctionType(f.__code__.replace(), f.__globals__, f.__name__, f.__defaults__, f.__closure__)
    own.__kwdefaults__ = f.__kwdefaults__
    return torch.compile(own, dynamic=False, fullgraph=True)


# -- which pairs are allowed -------------------------------------------------------------------------------------------


class _Side(NamedTuple):
    """The numbers of queries, or of keys, that the kernel reads, each (T,) or (B, T); None is 0, or not read."""

    columns: tuple[Tensor | None, ...]

    def at(self, b: Tensor, i: Tensor) -> list[Tensor]:
        zero = torch.zeros_like(i)
        return [zero if x is None else x[i] if x.ndim == 1 else x[b, i] for x in self.columns]


def _side(layout: Layout, read: Collection[int]) -> _Side:
    """Positions by axis, segment, role. Only what the kernel reads, since PyTorch raises an error for unused inputs."""
    numbers = [*layout.positions.unbind(-1), layout.segments, layout.roles]
    columns = [x if i in read else None for i, x in enumerate(numbers)]
    return _Side(tuple(None if x is None else (x[0] if x.shape[0] == 1 else x).contiguous() for x in columns))


def _block_mask(request: Request) -> BlockMask:
    """The block mask, made once per pass without a mask of all pairs."""
    about = (request.layout, request.kv_layout)
    return request.plan.once(f"flex {request.pattern.text}", about, lambda: _make_block_mask(request))


def _make_block_mask(request: Request) -> BlockMask:
    from torch.nn.attention.flex_attention import BlockMask

    device = request.q.device
    blocks = block_map(request.pattern, request.layout, request.kv_layout, _BLOCK, _BLOCK)
    maybe, surely = blocks.maybe.to(device), blocks.surely.to(device)
    return BlockMask.from_kv_blocks(
        *_listed(maybe & ~surely),
        *_listed(surely),
        BLOCK_SIZE=_BLOCK,
        mask_mod=_mask_mod(request.pattern, request),
        seq_lengths=(request.q.shape[1], request.k.shape[1]),
        compute_q_blocks=device.type != "cpu",  # for the backward pass
    )


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """For each row, the number of true blocks (1, 1, rows), and all block numbers, true ones first (1, 1, rows, columns)."""
    first = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32)[None, None], first.int()[None, None]


def _mask_mod(pattern: Pattern, request: Request) -> Callable[..., Tensor]:
    """Pattern, segments and padded keys, for one pair. `attend` handles padded queries."""
    rule = pairwise.rule(pattern, request.layout.positions.shape[-1], request.q.device)
    decide, tables = rule.decide, rule.tables
    one_segment = same_segment(request.layout, request.kv_layout)
    segment = set() if one_segment else {request.layout.positions.shape[-1]}
    queries = _side(request.layout, rule.of_query | segment)
    keys = _side(request.kv_layout, rule.of_key | segment | {0})

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        q, k = queries.at(b, i), keys.at(b, j)
        seen = decide(h, q, k, tables) & (k[0] >= 0)
        return seen if one_segment else seen & (q[-2] == k[-2])

    return mask_mod


# -- soft-cap and bias of a score --------------------------------------------------------------------------------------

_Term = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # batch, head, query index, key index → what is added


def _score_mod(request: Request) -> Callable[..., Tensor] | None:
    """cap · tanh(score / cap) + bias for one pair; None if there is neither."""
    cap, term = request.softcap, _term(request)
    if cap is None and term is None:
        return None

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if cap is not None:
            score = cap * torch.tanh(score / cap)
        return score if term is None else score + term(b, h, i, j)

    return score_mod


def _term(request: Request) -> _Term | None:
    """The bias of one pair. A scheme without a form for one pair becomes a dense tensor."""
    bias = request.bias
    if isinstance(bias, Bias):
        places = _side(request.layout, {0}), _side(request.kv_layout, {0})
        if isinstance(bias.scheme, ALiBi) and bias.scheme.precision == "float32":
            return _alibi(bias.scheme, bias.tensors[0], *places)
        if isinstance(bias.scheme, T5Buckets):
            return _t5(bias.scheme, bias.tensors[0], *places)
    dense = request.dense_bias()
    return None if dense is None else _looked_up(dense)


def _alibi(scheme: ALiBi, slopes: Tensor, queries: _Side, keys: _Side) -> _Term:
    scale = scheme.scale

    def term(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return -scale * slopes[h] * (queries.at(b, i)[0] - keys.at(b, j)[0]).abs()

    return term


def _t5(scheme: T5Buckets, weight: Tensor, queries: _Side, keys: _Side) -> _Term:
    def term(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return weight[scheme.bucket(keys.at(b, j)[0] - queries.at(b, i)[0]), h]

    return term


def _looked_up(bias: Tensor) -> _Term:
    """A (B|1, H|1, T|1, S|1) tensor, indexed along its axes that are longer than one."""
    shape = (1,) * (4 - bias.ndim) + tuple(bias.shape)
    used = [axis for axis, n in enumerate(shape) if n > 1]
    table = bias.reshape([shape[axis] for axis in used])

    def term(*where: Tensor) -> Tensor:
        return table[tuple(where[axis] for axis in used)] if used else table

    return term
