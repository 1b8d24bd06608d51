"""Stages of a pipeline: every way to cut the layers, tried."""

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from qkv.nn.cost.plan.stages import balanced


@given(costs=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=8), data=st.data())
def test_no_other_cut_has_a_cheaper_dearest_stage(costs: list[float], data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, len(costs)))

    def dearest(edges: list[int]) -> float:
        return max(sum(costs[a:b]) for a, b in pairwise(edges))

    edges = balanced(costs, stages)
    assert len(edges) == stages + 1 and edges[0] == 0 and edges[-1] == len(costs) and sorted(set(edges)) == edges
    others = ([0, *cuts, len(costs)] for cuts in combinations(range(1, len(costs)), stages - 1))
    assert dearest(edges) <= min(map(dearest, others)) + 1e-9
