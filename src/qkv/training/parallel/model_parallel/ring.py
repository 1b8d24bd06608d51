"""Ring attention (Liu et al. 2023): a sequence is split over ranks, among which keys and values circulate.

Each rank keeps its queries. At step s it has the keys and values of the rank s places before it, attends to them, and
passes them on; partial results are combined by their log-sum-exp (`merge`). After as many steps as ranks, every query has
seen every key, and no rank ever had more than two shards. Backward goes round once more: weights are recomputed from the
final log-sum-exp, and the gradients of keys and values travel with their shard until they are back at its rank.

Each shard has its layout, so patterns, padding and packed rows work as on one rank. In the contiguous order a causal
pattern leaves the first ranks idle; the zig-zag order (Dubey et al. 2024, §3.3.2; Brandon et al. 2023 balance by stripes)
gives each rank an early and a late chunk, and so equal work.

Each process calls `attend_shards` with a `Ring`, whose `send` and `receive` reach its neighbors.
docs/examples/ring_attention.py runs all ranks in one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor

from ....core.layout import Layout
from ....core.spec import brief, nearest
from ....nn.attention.attend import attend, merge
from ....nn.kernels.block_map import block_map
from ....nn.kernels.request import Result
from ....nn.patterns.basic import Full, Pattern
from ....nn.positions.base import Bias

Order = Literal["contiguous", "zigzag"]
_FULL = Full()


# -- the schedule ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RingSchedule:
    """How `length` tokens are split over `shards` ranks, and whose keys a rank has at each step.

    Contiguous: rank i has chunk i of p. Zig-zag: chunks i and 2p − 1 − i of 2p. All chunks have the same length, with
    padding in the last ones.
    """

    length: int
    shards: int
    order: Order = "zigzag"

    def __post_init__(self) -> None:
        if self.shards < 1 or self.length < 1:
            raise ValueError(f"{self.length} tokens can't be split over {self.shards} shards: both must be at least 1")
        if self.order not in get_args(Order):
            raise ValueError(f"there is no order {brief(self.order)}; {nearest(self.order, list(get_args(Order)))}")

    @property
    def chunk(self) -> int:
        """Tokens in a chunk."""
        return -(-self.length // (self.shards * len(self.chunks(0))))

    def chunks(self, rank: int) -> tuple[int, ...]:
        """The chunks of a rank, in order."""
        return (rank,) if self.order == "contiguous" else (rank, 2 * self.shards - 1 - rank)

    def owner(self, rank: int, step: int) -> int:
        """The rank whose keys and values a rank has at a step."""
        return (rank - step) % self.shards

    def tokens(self, rank: int, device: torch.device | str | None = None) -> Tensor:
        """The indices of a rank's tokens, (chunks · chunk,); indices from `length` on are padding."""
        inside = torch.arange(self.chunk, device=device)
        return torch.cat([inside + number * self.chunk for number in self.chunks(rank)])

    def shard(self, x: Tensor, rank: int, axis: int = 1, fill: float = 0) -> Tensor:
        """A rank's part of a tensor with an axis of `length` tokens, `fill` at its padding."""
        tokens = self.tokens(rank, x.device)
        part = x.index_select(axis, tokens.clamp(max=self.length - 1))
        padded = (tokens >= self.length).view(-1, *[1] * (x.ndim - axis - 1))
        return part.masked_fill(padded, fill) if self._total > self.length else part

    def layout(self, layout: Layout, rank: int) -> Layout:
        """The layout of a rank's tokens, with their positions, segments and roles."""
        unpadded = layout.padding == "none" and self._total == self.length
        return replace(
            layout,
            positions=self.shard(layout.positions, rank, fill=-1),
            segments=None if layout.segments is None else self.shard(layout.segments, rank, fill=-1),
            roles=None if layout.roles is None else self.shard(layout.roles, rank),
            padding="none" if unpadded else "mixed",
            sequential=False,
            start=None,
            lengths=None,
            grid=None,
        )

    def join(self, parts: Sequence[Tensor], axis: int = 1) -> Tensor:
        """The inverse of `shard`: the parts of all ranks, in order, as one tensor without padding."""
        order = torch.cat([self.tokens(rank, parts[0].device) for rank in range(self.shards)]).argsort()
        return torch.cat(list(parts), axis).index_select(axis, order[: self.length])

    @property
    def _total(self) -> int:
        return self.chunk * self.shards * len(self.chunks(0))


# -- communication -----------------------------------------------------------------------------------------------------

Parcel = list[Tensor]  # of the same shapes on every rank


class Ring(Protocol):
    """Communication: passes tensors from each rank to the next one, and from the last to the first.

    `ranks` are the ranks of this process: one, or all of them. A sent parcel belongs to its receiver. Parcels arrive in the
    order in which they were sent; `send` need not wait, so they can travel during the next step.
    """

    @property
    def size(self) -> int: ...
    @property
    def ranks(self) -> Sequence[int]: ...
    def send(self, parcels: list[Parcel]) -> None: ...
    def receive(self) -> list[Parcel]: ...


# -- computation -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RingProblem:
    """What every rank knows: schedules, options of `attend`, and the layouts of the complete sequences."""

    queries: RingSchedule
    keys: RingSchedule
    layout: Layout
    kv_layout: Layout
    pattern: Pattern = _FULL
    bias: Tensor | Bias | None = None
    scale: float | None = None
    softcap: float | None = None
    backend: str = "auto"
    _seen: dict[tuple[int, int], bool] = field(default_factory=dict)

    @cached_property
    def q_layouts(self) -> list[Layout]:
        return [self.queries.layout(self.layout, rank) for rank in range(self.queries.shards)]

    @cached_property
    def kv_layouts(self) -> list[Layout]:
        return [self.keys.layout(self.kv_layout, rank) for rank in range(self.keys.shards)]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of the bias."""
        return self.bias.tensors if isinstance(self.bias, Bias) else () if self.bias is None else (self.bias,)

    def meets(self, rank: int, owner: int) -> bool:
        """Whether some query of one rank may see some key of another, by the block map of their chunks."""
        if (rank, owner) not in self._seen:
            sizes = self.queries.chunk, self.keys.chunk
            blocks = block_map(self.pattern, self.q_layouts[rank], self.kv_layouts[owner], *sizes)
            self._seen[rank, owner] = bool(blocks.maybe.any())
        return self._seen[rank, owner]

    def step(self, rank: int, owner: int, q: Tensor, received: Parcel, tensors: Sequence[Tensor]) -> Result:
        """Attention of one rank's queries to one shard of keys and values: partial output and log-sum-exp."""
        return attend(
            q,
            *received,
            pattern=self.pattern,
            layout=self.q_layouts[rank],
            kv_layout=self.kv_layouts[owner],
            bias=self._bias(rank, owner, tensors),
            scale=self.scale,
            softcap=self.softcap,
            return_lse=True,
            backend=self.backend,
        )

    def _bias(self, rank: int, owner: int, tensors: Sequence[Tensor]) -> Tensor | Bias | None:
        """The part of the bias for these shards: schemes compute it from layouts, tensors are indexed."""
        if isinstance(self.bias, Bias):
            return Bias(self.bias.scheme, tuple(tensors))
        if self.bias is None:
            return None
        (part,) = tensors
        part = part.reshape((1,) * (4 - part.ndim) + tuple(part.shape))
        for axis, schedule, which in ((2, self.queries, rank), (3, self.keys, owner)):
            part = part if part.shape[axis] == 1 else schedule.shard(part, which, axis)
        return part


def _forward(
    problem: RingProblem, ring: Ring, q: list[Tensor], k: list[Tensor], v: list[Tensor], tensors: Sequence[Tensor]
) -> list[tuple[Tensor, Tensor]]:
    """For each rank of this process its output (B, T/p, H, E) and log-sum-exp (B, H, T/p), in at least fp32."""
    results = [_empty_result(x, y) for x, y in zip(q, v, strict=True)]
    shards = [[x, y] for x, y in zip(k, v, strict=True)]
    for step in range(ring.size):
        if step < ring.size - 1:
            ring.send(shards)
        for i, rank in enumerate(ring.ranks):
            owner = problem.keys.owner(rank, step)
            if problem.meets(rank, owner):
                out, lse = problem.step(rank, owner, q[i], shards[i], tensors)
                results[i] = merge(*results[i], out.to(results[i][0].dtype), lse)
        if step < ring.size - 1:
            shards = ring.receive()
    return results


def _empty_result(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The result over no keys."""
    wide = torch.promote_types(q.dtype, torch.float32)
    b, t, h, _ = q.shape
    return q.new_zeros(b, t, h, v.shape[-1], dtype=wide), q.new_full((b, h, t), -torch.inf, dtype=wide)


@dataclass
class _Backward:
    """What one rank keeps for backward: its queries, its final result, and the gradients of that."""

    q: Tensor
    out: Tensor
    lse: Tensor
    d_out: Tensor
    d_lse: Tensor

    def through_merge(self, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of one step's result. With w = exp(lse_s − lse), out = Σ w out_s and lse = log Σ exp lse_s:

        d out_s = w · d out,   d lse_s = w · (d out · (out_s − out) + d lse).
        """
        share = (lse - self.lse).exp().masked_fill(lse == -torch.inf, 0.0)
        along = (self.d_out * (out.to(self.out.dtype) - self.out)).sum(-1).transpose(1, 2)
        d_out = self.d_out * share.transpose(1, 2)[..., None]
        return d_out.to(out.dtype), (share * (along + self.d_lse)).masked_fill(share == 0.0, 0.0).to(lse.dtype)


def _step_backward(
    problem: RingProblem, rank: int, owner: int, rows: _Backward, received: Parcel, tensors: Sequence[Tensor]
) -> list[Tensor | None]:
    """Gradients of q, k, v and the bias's tensors from one step, which is recomputed."""
    inputs = [x.detach() for x in (rows.q, *received, *tensors)]
    trained = [True] * 3 + [x.requires_grad for x in problem.tensors]
    leaves = [x.requires_grad_() for x, wanted in zip(inputs, trained, strict=True) if wanted]
    with torch.enable_grad():
        out, lse = problem.step(rank, owner, inputs[0], inputs[1:3], inputs[3:])
    wanted = rows.through_merge(out.detach(), lse.detach())
    grads = iter(torch.autograd.grad((out, lse), leaves, wanted, allow_unused=True))
    return [next(grads) if given else None for given in trained]


def _backward(
    problem: RingProblem, ring: Ring, rows: list[_Backward], k: list[Tensor], v: list[Tensor], tensors: Sequence[Tensor]
) -> tuple[list[Tensor], list[Parcel], list[Tensor]]:
    """Gradients of each rank's q, of its (k, v), and of the bias's tensors, summed over the ranks of this process.

    Keys and values start at their rank again, and their gradients travel with them.
    """
    d_q = [torch.zeros_like(x.q, dtype=x.out.dtype) for x in rows]
    d_bias = [torch.zeros_like(x) for x in tensors]
    shards = [[x, y] for x, y in zip(k, v, strict=True)]
    d_shards = [[torch.zeros_like(x, dtype=rows[0].out.dtype) for x in parcel] for parcel in shards]
    for step in range(ring.size):
        if step < ring.size - 1:
            ring.send(shards)
        for i, rank in enumerate(ring.ranks):
            owner = problem.keys.owner(rank, step)
            if problem.meets(rank, owner):
                grads = _step_backward(problem, rank, owner, rows[i], shards[i], tensors)
                for total, grad in zip((d_q[i], *d_shards[i], *d_bias), grads, strict=True):
                    if grad is not None:
                        total.add_(grad)
        ring.send(d_shards)
        if step < ring.size - 1:
            shards = ring.receive()
        d_shards = ring.receive()
    return d_q, d_shards, d_bias


class _Attention(torch.autograd.Function):
    """The ring as one operation: (problem, ring, q of each rank, k …, v …, bias …) → out of each rank, lse of each."""

    @staticmethod
    def forward(ctx: Any, problem: RingProblem, ring: Ring, *tensors: Tensor) -> tuple[Tensor, ...]:
        q, k, v, rest = _sides(ring, tensors)
        results = _forward(problem, ring, q, k, v, rest)
        ctx.problem, ctx.ring = problem, ring
        ctx.save_for_backward(*tensors, *(x for result in results for x in result))
        return (*(out.to(x.dtype) for (out, _), x in zip(results, q, strict=True)), *(lse for _, lse in results))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        n, saved = len(ctx.ring.ranks), ctx.saved_tensors  # read once, as activation checkpointing demands
        inputs, results = saved[: -2 * n], saved[-2 * n :]
        q, k, v, rest = _sides(ctx.ring, inputs)
        outs, lses = results[::2], results[1::2]
        rows = [_Backward(q[i], outs[i], lses[i], grads[i].to(outs[i].dtype), grads[n + i]) for i in range(n)]
        d_q, d_kv, d_bias = _backward(ctx.problem, ctx.ring, rows, k, v, rest)
        grads = (*d_q, *(pair[0] for pair in d_kv), *(pair[1] for pair in d_kv), *d_bias)
        return (None, None, *(d.to(x.dtype) for d, x in zip(grads, inputs, strict=True)))


def _sides(ring: Ring, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    n = len(ring.ranks)
    q, k, v = (list(tensors[i * n : (i + 1) * n]) for i in range(3))
    return q, k, v, list(tensors[3 * n :])


# -- the entry point ---------------------------------------------------------------------------------------------------


def attend_shards(
    problem: RingProblem, ring: Ring, q: Sequence[Tensor], k: Sequence[Tensor], v: Sequence[Tensor]
) -> list[tuple[Tensor, Tensor]]:
    """Ring attention: from the shards of this process's ranks, their outputs (B, T/p, H, E) and log-sum-exps (B, H, T/p).

    All processes of the ring must call it, and run its backward pass. Gradients of a trained bias are sums over the ranks of
    this process; sum them over processes.
    """
    n = len(ring.ranks)
    results = _Attention.apply(problem, ring, *q, *k, *v, *problem.tensors)
    return list(zip(results[:n], results[n:], strict=True))
