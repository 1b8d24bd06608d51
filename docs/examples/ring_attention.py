"""Ring attention with all ranks in one process: the results and gradients of `attend`, and how evenly the work is split.

Run it with `python docs/examples/ring_attention.py`. In a real run each process calls `attend_shards` with a `Ring` that
reaches its neighbors.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from qkv import Layout, attend, causal
from qkv.nn.attention.attend import check_layouts, check_options, check_tensors, layouts_of
from qkv.nn.kernels.plan import allowed_mask
from qkv.nn.patterns.basic import Full, Pattern
from qkv.nn.positions.base import Bias
from qkv.training.parallel.model_parallel.ring import Order, Parcel, RingProblem, RingSchedule, attend_shards

_FULL = Full()


class OneProcess:
    """All ranks in one process: what one sends, the next one has."""

    def __init__(self, size: int) -> None:
        self.size, self.ranks = size, range(size)
        self._under_way: deque[list[Parcel]] = deque()

    def send(self, parcels: list[Parcel]) -> None:
        self._under_way.append([parcels[-1], *parcels[:-1]])

    def receive(self) -> list[Parcel]:
        return self._under_way.popleft()


def ring(
    q: Float[Tensor, "B T H D"],
    k: Float[Tensor, "B S K D"],
    v: Float[Tensor, "B S K E"],
    *,
    shards: int,
    pattern: Pattern = _FULL,
    layout: Layout | None = None,
    kv_layout: Layout | None = None,
    order: Order = "zigzag",
    bias: Tensor | Bias | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    return_lse: bool = False,
    backend: str = "auto",
) -> Any:
    """`attend`, computed as `shards` ranks of a ring would, all of them in this process: same result, same gradients.

    Arguments as in `attend`; lengths need not divide. Raises ValueError as `attend` does, and for dropout, whose weights
    no two ranks would drop alike.
    """
    if dropout:
        raise ValueError(f"ring attention has no dropout of attention weights, and got {dropout}; leave it at 0")
    check_tensors(q, k, v)
    layout, kv_layout = layouts_of(q, k, pattern, layout, kv_layout, bias)
    check_layouts(q, k, layout, kv_layout)
    check_options(q, k, bias, scale, dropout, softcap)
    queries, keys = (RingSchedule(x.shape[1], shards, order) for x in (q, k))
    problem = RingProblem(queries, keys, layout, kv_layout, pattern, bias, scale, softcap, backend)
    ranks = range(shards)
    results = attend_shards(
        problem,
        OneProcess(shards),
        [problem.queries.shard(q, rank) for rank in ranks],
        *([problem.keys.shard(x, rank) for rank in ranks] for x in (k, v)),
    )
    out = problem.queries.join([out for out, _ in results])
    return (out, problem.queries.join([lse for _, lse in results], 2)) if return_lse else out


def pairs(problem: RingProblem) -> Tensor:
    """How many pairs of tokens each rank has to score at each step, (ranks, steps), for the first of the heads."""
    ranks = range(problem.queries.shards)
    counts = [[_allowed(problem, rank, problem.keys.owner(rank, step)) for step in ranks] for rank in ranks]
    return torch.tensor(counts)


def _allowed(problem: RingProblem, rank: int, owner: int) -> int:
    if not problem.meets(rank, owner):
        return 0
    q, k = problem.q_layouts[rank], problem.kv_layouts[owner]
    mask = q.valid[:, None, :, None] & k.valid[:, None, None]
    allowed = allowed_mask(problem.pattern, q, k, n_heads=1)
    return int((mask if allowed is None else mask & allowed).sum())


def main() -> None:
    q = torch.randn(1, 1000, 8, 16, dtype=torch.float64)
    k, v = (torch.randn(1, 1000, 2, 16, dtype=torch.float64) for _ in range(2))
    out = ring(q, k, v, shards=4, pattern=causal())
    torch.testing.assert_close(out, attend(q, k, v, pattern=causal()))

    layout = Layout.full(1000)
    for order in ("contiguous", "zigzag"):
        schedule = RingSchedule(1000, shards=4, order=order)
        work = pairs(RingProblem(schedule, schedule, layout, layout, causal())).sum(1)
        print(order, round(float(work.max() / work.double().mean()), 2))


if __name__ == "__main__":
    main()
