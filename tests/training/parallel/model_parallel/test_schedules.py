"""Schedules of pipelines, simulated: complete, without deadlock, with the bubbles that their papers give."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.training.parallel.model_parallel.schedules import (
    Action,
    ScheduleTurn,
    actions,
    chunks_of,
    messages_of,
    simulated,
    turns,
)

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
def test_bubbles_are_those_of_the_papers(schedule, bubble, ranks):
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


def waits_for_ever(programs, ranks):
    """Replay the programs of ranks, lists of turns, as NCCL would run them. Returns what is left on each rank.

    Between two ranks there is one queue on each side, for both directions and without tags: the first entries of both sides
    have to be the two ends of one message, and hold up all entries behind them. A rank runs its program in order. It waits
    for the input of an action. To receive hidden states it waits until their sender has begun, as it needs their shapes.
    """
    hosts = [[step for turn in program for step in (*turn.before, turn.action, *turn.after)] for program in programs]
    chunks = 1 + max(action.chunk for program in programs for _, action, _ in program)
    queues = {(rank, peer): [] for rank in range(ranks) for peer in range(ranks)}
    begun, arrived, moved = set(), set(), True
    while moved:
        moved = False
        for rank, host in enumerate(hosts):
            while host:
                step = host[0]
                if isinstance(step, Action):
                    needed, _ = messages_of(step, rank, ranks, chunks * ranks)
                    if needed is not None and needed not in arrived:
                        break
                else:
                    sends = step.sender % ranks == rank
                    if not (sends or step.back or step in begun):
                        break
                    begun |= {step} if sends else set()
                    queues[rank, (step.receiver if sends else step.sender) % ranks].append((sends, step))
                host.pop(0)
                moved = True
        for rank, peer in queues:
            mine, theirs = queues[rank, peer], queues[peer, rank]
            while mine and theirs and mine[0][1] == theirs[0][1] and mine[0][0] != theirs[0][0]:
                arrived.add(mine.pop(0)[1])
                theirs.pop(0)
                moved = True
    return [*hosts, *queues.values()]


@pytest.mark.parametrize("ranks", range(2, 9))
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_messages_of_every_schedule_meet_without_tags_in_one_order_for_each_pair_of_ranks(schedule, ranks):
    for n in range(1, 33):
        if schedule != "interleaved-1f1b" or n % ranks == 0:
            programs = [turns(schedule, n, ranks, rank) for rank in range(ranks)]
            assert not any(waits_for_ever(programs, ranks)), f"{n} microbatches"


def naive(schedule, microbatches, ranks, rank):
    """Each message sent when it is there, and received when it is needed."""
    stages = chunks_of(schedule) * ranks
    for action in actions(schedule, microbatches, ranks, rank):
        needed, produced = messages_of(action, rank, ranks, stages)
        yield ScheduleTurn([] if needed is None else [needed], action, [] if produced is None else [produced])


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved-1f1b", "zb-h1"])
def test_messages_sent_when_they_are_there_would_not_meet(schedule):
    assert any(waits_for_ever([list(naive(schedule, 8, 4, rank)) for rank in range(4)], 4))


@given(schedule=st.sampled_from(SCHEDULES), ranks=st.integers(2, 6), groups=st.integers(1, 4))
def test_turns_are_the_actions_of_a_schedule_with_each_message_once(schedule, ranks, groups):
    n = groups * ranks
    programs = [turns(schedule, n, ranks, rank) for rank in range(ranks)]
    assert [[turn.action for turn in program] for program in programs] == [
        actions(schedule, n, ranks, rank) for rank in range(ranks)
    ]
    ends = Counter(m for program in programs for before, _, after in program for m in (*before, *after))
    assert set(ends.values()) == {2} and len(ends) == 2 * n * (chunks_of(schedule) * ranks - 1)
