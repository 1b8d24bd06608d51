from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.batching.bucketing import batch_edges, bucketed_order

SIZES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=40)


def sides(sizes: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(sizes, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


@given(SIZES, st.integers(18, 60), st.integers(1, 9))
def test_batches_keep_the_budget_and_are_full(sizes: list[tuple[int, int]], tokens: int, most: int) -> None:
    edges = batch_edges(*sides(sizes), tokens, most)
    assert edges[0] == 0 and edges[-1] == len(sizes) and sorted(set(edges)) == edges
    groups = [sizes[a:b] for a, b in itertools.pairwise(edges)]

    def slots(group: list[tuple[int, int]]) -> int:
        return len(group) * (max(n for n, _ in group) + max(m for _, m in group))

    for group, following in itertools.zip_longest(groups, groups[1:]):
        assert slots(group) <= tokens and len(group) <= most
        assert following is None or slots([*group, following[0]]) > tokens or len(group) == most


def test_neighbors_are_alike_on_both_sides() -> None:
    """Each step of the order changes one length by one, wherever all pairs of lengths are there."""
    grid = [(n, m) for n in range(1, 7) for m in range(1, 7)]
    ordered = [grid[i] for i in bucketed_order(*sides(grid))]
    assert sorted(ordered) == grid
    steps = [abs(a - c) + abs(b - d) for (a, b), (c, d) in itertools.pairwise(ordered)]
    assert max(steps) == 1


def test_chance_breaks_ties() -> None:
    assert bucketed_order(*sides([(3, 3), (2, 1), (3, 3), (2, 1)])).tolist() == [1, 3, 0, 2]
