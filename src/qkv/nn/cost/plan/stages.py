"""Consecutive layers for the stages of a pipeline, so the dearest stage costs the least that is possible."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache


def balanced(costs: Sequence[float], stages: int) -> list[int]:
    """The first layer of each stage, and the number of layers: consecutive layers, at least one each, of which the dearest
    stage is the cheapest possible."""
    return list(_balanced(tuple(costs), stages))


@lru_cache(maxsize=256)
def _balanced(costs: tuple[float, ...], stages: int) -> tuple[int, ...]:
    n = len(costs)
    total = [0.0]
    for cost in costs:
        total.append(total[-1] + cost)
    best = [[float("inf")] * (n + 1) for _ in range(stages + 1)]  # [stages][layers]: cost of the dearest stage
    cut = [[0] * (n + 1) for _ in range(stages + 1)]
    best[0][0] = 0.0
    for stage in range(1, stages + 1):
        for stop in range(stage, n + 1):
            for start in range(stage - 1, stop):
                dearest = max(best[stage - 1][start], total[stop] - total[start])
                if dearest < best[stage][stop]:
                    best[stage][stop], cut[stage][stop] = dearest, start
    edges = [n]
    for stage in range(stages, 0, -1):
        edges.append(cut[stage][edges[-1]])
    return tuple(edges[::-1])
