"""Bubbles and microbatches in flight, against the schedules played out."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.nn.cost.plan.bubbles import bubble, in_flight
from qkv.nn.cost.plan.layout import RankLayout
from qkv.nn.cost.plan.rules import PipelineSchedule, chunks_of
from qkv.training.parallel.model_parallel.schedules import actions, simulated

SCHEDULES = get_args(PipelineSchedule)


@given(st.sampled_from(SCHEDULES), st.integers(2, 6), st.integers(1, 4), st.floats(0.1, 3.0))
def test_bubbles_and_microbatches_in_flight_match_the_schedules(
    schedule: PipelineSchedule, ranks: int, groups: int, forward: float
) -> None:
    m = groups * ranks
    layout = RankLayout(ranks, microbatches=m, schedule=schedule, chunks=chunks_of(schedule))
    idle = simulated(schedule, m, ranks, (forward, forward, forward)).idle(0)
    assert bubble(layout, forward, 2 * forward) == pytest.approx(idle)
    for rank in range(ranks):
        kept = most = 0
        for action in actions(schedule, m, ranks, rank):
            kept += (action.kind == "forward") - (action.kind in ("backward", "weight"))
            most = max(most, kept)
        assert in_flight(layout, rank) >= most / chunks_of(schedule) - 1e-9
        assert in_flight(layout, rank) <= most / chunks_of(schedule) + rank * (schedule == "zb-h1") + 1e-9
