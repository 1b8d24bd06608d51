"""Attention whose keys are divided over ranks (context parallelism): ring, all-to-all, or all-gather.

ring:        keys and values circulate, and partial results are merged (Liu et al. 2023, `ring`).
all-to-all:  tokens are exchanged for heads, so each rank has all tokens of some heads (DeepSpeed Ulysses, Jacobs et
             al. 2023). The number of ranks has to divide the heads.
all-gather:  every rank gathers the keys and values of all (Dubey et al. 2024, §3.3.2). This is also what takes the place of
             the others for attention that they don't have: other scores and weightings, sinks, and dropout of weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ....core.graphs import untraced
from ....core.layout import Layout
from ....nn.attention.attend import attend
from ....nn.cost.plan.rules import ContextAttention
from ....nn.patterns.documents import TokenPlaces, current_places, places_of, placing
from ....nn.positions.base import Bias
from .. import collectives
from ..world import World
from .axis import TokenAxis
from .ring import Parcel, RingProblem, attend_shards

_NOT_IN_RINGS = ("score", "weighting", "sinks", "observe")


@untraced  # by torch.compile: communication breaks its graph
def attention(
    axis: TokenAxis,
    method: ContextAttention,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    layout: Layout,
    kv_layout: Layout,
    **options: Any,
) -> Tensor:
    """`attend` for this rank's queries (B, T/p, H, D), to the keys and values of all ranks."""
    if kv_layout is not axis.layout:  # an encoder's output, which every rank has
        return attend(q, k, v, layout=layout, kv_layout=kv_layout, **options)
    plain = not options.get("dropout") and all(options.get(name) is None for name in _NOT_IN_RINGS)
    if method == "ring" and plain:
        return _ring(axis, q, k, v, options)
    if method == "all-to-all" and _exchangeable(axis, q, k, options):
        return _all_to_all(axis, q, k, v, options)
    k, v = (_all_tokens(axis, x) for x in (k, v))
    return attend(q, k, v, layout=layout, kv_layout=axis.whole, **options)


def _all_tokens(axis: TokenAxis, x: Tensor) -> Tensor:
    """Keys or values (B, T/p, K, D) of all tokens, in order."""
    return axis.gather(x.flatten(2)).unflatten(2, x.shape[2:])


# -- ring --------------------------------------------------------------------------------------------------------------


class ProcessRing:
    """A ring of processes, see `ring.Ring`."""

    def __init__(self, ranks: World) -> None:
        self.world = ranks
        self.size, self.ranks = ranks.size, (ranks.rank,)
        self.sent: list[tuple[list[dist.Work], Parcel, Parcel]] = []

    def send(self, parcels: list[Parcel]) -> None:
        (parcel,) = parcels
        ready = [x.contiguous() for x in parcel]
        received = [torch.empty_like(x) for x in ready]
        following, before = (self.world.rank + 1) % self.size, (self.world.rank - 1) % self.size
        operations = [dist.P2POp(dist.isend, x, group=self.world.group, group_peer=following) for x in ready]
        operations += [dist.P2POp(dist.irecv, x, group=self.world.group, group_peer=before) for x in received]
        self.sent.append((dist.batch_isend_irecv(operations), ready, received))

    def receive(self) -> list[Parcel]:
        works, _, received = self.sent.pop(0)
        for work in works:
            work.wait()
        return [received]


def _ring(axis: TokenAxis, q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> Tensor:
    ranks, whole = axis.ranks, axis.whole
    assert isinstance(ranks, World)
    bias, given = options.get("bias"), [options.get(name) for name in ("scale", "softcap", "backend")]
    key = (options["pattern"], id(bias), *given)
    if key not in axis.problems:  # which keeps the bias alive, so no other one has its id
        sides = axis.schedule, axis.schedule, whole, whole
        scale, softcap, backend = given
        axis.problems[key] = RingProblem(*sides, options["pattern"], bias, scale, softcap, backend or "auto")
    ((out, _),) = attend_shards(axis.problems[key], ProcessRing(ranks), [q], [k], [v])
    return out


# -- all-to-all --------------------------------------------------------------------------------------------------------


def _exchangeable(axis: TokenAxis, q: Tensor, k: Tensor, options: dict[str, Any]) -> bool:
    """Whether the heads can be divided, and nothing of the attention differs from head to head but the bias of positions."""
    ranks = axis.ranks.size
    bias = options.get("bias")
    uniform = not options["pattern"].per_head and all(
        options.get(name) is None for name in ("score", "sinks", "observe")
    )
    return uniform and q.shape[2] % ranks == 0 == k.shape[2] % ranks and (bias is None or isinstance(bias, Bias))


def _all_to_all(axis: TokenAxis, q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> Tensor:
    ranks, schedule = axis.ranks, axis.schedule
    assert isinstance(ranks, World)
    p, bias = ranks.size, options.get("bias")
    if isinstance(bias, Bias):
        heads = q.shape[2] // p
        options = {**options, "bias": bias.of_heads(range(ranks.rank * heads, (ranks.rank + 1) * heads))}

    def to_heads(x: Tensor) -> Tensor:
        """(B, T/p, H, D) → (B, T, H/p, D), tokens in order."""
        chunks = torch.stack(x.chunk(p, 2))
        every = collectives.exchange(chunks, ranks, [1] * p, [1] * p)
        return schedule.join(every.unbind())

    def to_tokens(x: Tensor) -> Tensor:
        """(B, T, H/p, E) → (B, T/p, H, E)."""
        parts = torch.stack([schedule.shard(x, rank) for rank in range(p)])
        return torch.cat(collectives.exchange(parts, ranks, [1] * p, [1] * p).unbind(), 2)

    whole = axis.whole
    with placing(_of_heads(whole, ranks.rank * q.shape[2] // p) if options.get("dropout") else None):
        return to_tokens(attend(to_heads(q), to_heads(k), to_heads(v), layout=whole, kv_layout=whole, **options))


def _of_heads(whole: Layout, first: int) -> TokenPlaces | None:
    """Return the places of all tokens, and of heads from `first` on, counted from this rank's first head."""
    before = current_places()
    return None if before is None else replace(places_of(whole) or TokenPlaces(), head=before.head + first)
