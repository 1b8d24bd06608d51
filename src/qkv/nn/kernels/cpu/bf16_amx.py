"""Attention in bf16 on CPUs with AMX, Intel's matrix unit: which requests the C++ kernels serve, and their inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from ...patterns.basic import And, Causal, Full, Or, Pattern, Window
from ..native import bf16_amx as native
from ..native.bf16_amx import Marks
from ..native.block_sparse import BlockPlan
from ..plan import first_position
from ..request import Request
from . import block_plan
from .block_plan import OperatorLayouts
from .identity_cache import IdentityCache

# Scores from which the kernels are called, and built if they aren't yet: in training, where the fused function is slow,
# and in a forward pass alone.
_MIN_SCORES, _MIN_SCORES_FORWARD = 1 << 16, 1 << 18
_MIN_ROWS = 16  # queries below which most of a tile would be empty


@dataclass
class Bf16Attention:
    """Like `BlockSparse`. Results are None if masked keys or values may not be finite."""

    plan: BlockPlan
    marks: Marks | None
    scale: float

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor] | None:
        q, k, v = tensors
        return native.forward(q, k, v, self.plan, self.marks, self.scale)

    def backward(self, *tensors: Any) -> tuple[Tensor, ...] | None:
        q, k, v, out, lse, d_out, d_lse = tensors
        return native.backward(q, k, v, out, lse, d_out, d_lse, self.plan, self.marks, self.scale)


def expected(request: Request) -> bool:
    """Whether the kernels should serve a request, as far as the host can tell."""
    bare = request.bias is None and not request.softcap and not request.dropout
    tensors = request.q, request.k, request.v
    if not bare or not native.fits(*tensors, request.scale):
        return False
    trained = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    if not _enough(request.q, request.k, _MIN_SCORES if trained else _MIN_SCORES_FORWARD):
        return False
    q, k, rule = request.layout, request.kv_layout, request.pattern
    if rule.per_head or rule.regroup() is not None:
        return False
    sequential = q is k and q.sequential and q.positions.shape[-1] == 1
    consecutive = min(first_position(q), first_position(k)) >= 0
    if not (isinstance(rule, Full) or consecutive or (sequential and _by_distance(rule))):
        return False
    # Nothing is built while a graph is traced: if the build fails later, the other kernels of `tiled` serve.
    return torch.compiler.is_compiling() or isinstance(request.q, FakeTensor) or native.ready()


def find(q: Tensor, k: Tensor, v: Tensor, rule: Pattern, tokens: OperatorLayouts, scale: float) -> Bf16Attention | None:
    """The kernels, if they can compute the request."""
    if rule.per_head or rule.regroup() is not None or not _enough(q, k, _MIN_SCORES):
        return None
    if not native.serves(q, k, v, scale):
        return None
    marks = None if tokens.known else _marks(rule, tokens)
    if marks is None and not tokens.known:
        return None
    starts = tokens.starts if tokens.known else (0, 0)
    plans = block_plan.consecutive(rule, q.shape[1], k.shape[1], *starts)
    return None if plans is None else Bf16Attention(plans[0], marks, scale)


def _enough(q: Tensor, k: Tensor, least: int) -> bool:
    t, s = q.shape[1], k.shape[1]
    return t >= _MIN_ROWS and q.shape[0] * q.shape[2] * t * s >= least


def _by_distance(rule: Pattern) -> bool:
    """Whether the rule depends only on the distance between query and key."""
    if isinstance(rule, And | Or):
        return all(_by_distance(part) for part in rule.parts)
    return isinstance(rule, Full | Causal | Window)


_cache: IdentityCache[tuple[Marks, bool]] = IdentityCache()


def _marks(rule: Pattern, tokens: OperatorLayouts) -> Marks | None:
    """Segments and padding as marks, cached; None if the rule can't be computed from these and the tokens' indices."""
    positions, segments = tokens.positions, tokens.marks[:2]
    marks, regular = _cache.get("marks", [*positions, *segments], lambda: _compute_marks(positions, segments))
    return marks if isinstance(rule, Full) or (regular and _by_distance(rule)) else None


def _compute_marks(positions: list[Tensor], segments: list[Tensor | None]) -> tuple[Marks, bool]:
    """The marks, and whether distances between queries and keys of one mark equal the distances of their indices."""
    marks = []
    for place, segment, padding in zip(positions, segments, (-1, -2), strict=True):
        valid = place[..., 0] >= 0
        own = torch.zeros_like(valid, dtype=torch.int32) if segment is None else segment.to(torch.int32)
        marks.append(torch.where(valid, own, padding).contiguous())
    q, k = positions[0][..., 0], positions[1][..., 0]
    if positions[0].shape[-1] != 1 or q.shape != k.shape or not torch.equal(q, k):
        return Marks(*marks), False
    same = marks[0][:, 1:] == marks[0][:, :-1]
    steady = ~same | (q[:, 1:] < 0) | (q[:, 1:] - q[:, :-1] == 1)
    in_runs = same.sum() == (marks[0].sort(1).values.diff(dim=1) == 0).sum()  # tokens of one mark stand together
    return Marks(*marks), bool(steady.all() & in_runs)
