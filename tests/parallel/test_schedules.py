"""Schedules of pipelines, simulated: complete, without deadlock, with the bubbles that their papers give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.parallel.model_parallel.schedules import actions, chunks_of, simulated

SCHEDULES = ("gpipe", "1f1b", "interleaved-1f1b", "zb-h1")


@given(schedule=st.sampled_from(SCHEDULES), ranks=st.integers(2, 6), groups=st.integers(1, 4), rest=st.integers(0, 5))
def test_every_pass_is_run_once_and_the_ranks_never_wait_for_ever(schedule, ranks, groups, rest):
    n = groups * ranks if schedule == "interleaved-1f1b" else groups + rest
    simulated(schedule, n, ranks, (1.0, 1.0, 1.0))
    for rank in range(ranks):
        done = actions(schedule, n, ranks, rank)
        assert len(set(done)) == len(done)
        for chunk in range(chunks_of(schedule)):
            kinds = {kind: [i for k, i, c in done if (k, c) == (kind, chunk)] for kind in {k for k, *_ in done}}
            assert all(sorted(numbers) == list(range(n)) for numbers in kinds.values())
            assert set(kinds) == ({"forward", "input", "weight"} if schedule == "zb-h1" else {"forward", "backward"})


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize(
    ("schedule", "bubble"), [("gpipe", 3.0), ("1f1b", 3.0), ("interleaved-1f1b", 1.5), ("zb-h1", 1.0)]
)
def test_bubbles(schedule, bubble, ranks):
    """(p − 1)(F + I + W) for GPipe and 1F1B, half of it with two stages a rank, and (p − 1)(F + I − W) for ZB-H1; here all
    passes take 1. Narayanan et al. 2021, §2.2; Qi et al. 2023, table 1."""
    timeline = simulated(schedule, 4 * ranks, ranks, (1.0, 1.0, 1.0))
    assert [timeline.idle(rank) for rank in range(ranks)] == [pytest.approx(bubble * (ranks - 1))] * ranks


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_no_rank_of_zb_h1_keeps_more_microbatches_than_the_first_one_of_1f1b(ranks):
    def most(schedule, rank):
        kept, peak = 0, 0
        for kind, *_ in actions(schedule, 4 * ranks, ranks, rank):
            kept += {"forward": 1, "input": 0}.get(kind, -1)
            peak = max(peak, kept)
        return peak

    assert most("1f1b", 0) == ranks
    assert all(most("zb-h1", rank) <= ranks for rank in range(ranks))
    assert most("gpipe", 0) == 4 * ranks


def test_groups_of_microbatches_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"a step has 6; training\.accumulate can be 4, 8, 12"):
        actions("interleaved-1f1b", 6, 4, 0)
