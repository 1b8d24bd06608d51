"""Collectives against a simulated ring, and their laws."""

from hypothesis import given
from hypothesis import strategies as st

from qkv.nn.cost.plan.communication import RankGroup
from qkv.nn.cost.plan.network import Link, Network

FLAT = Network("flat", 1 << 20, Link(1e9, 0.0, 1.0), Link(1e9, 0.0, 1.0))


def ring_seconds(ranks: int, size: float, rounds: int) -> float:
    """Every round, each rank sends one n-th of the tensor to its neighbor."""
    return sum(size / ranks / 1e9 for _ in range(rounds))


@given(st.integers(1, 64), st.floats(1, 1e12))
def test_a_ring_takes_its_rounds(ranks: int, size: float) -> None:
    group = RankGroup(FLAT, ranks)
    assert abs(group.all_gather(size) - ring_seconds(ranks, size, ranks - 1)) <= 1e-9 * group.all_gather(size) + 1e-15
    assert (
        abs(group.all_reduce(size) - ring_seconds(ranks, size, 2 * (ranks - 1)))
        <= 1e-9 * group.all_reduce(size) + 1e-15
    )


@given(st.integers(2, 512), st.sampled_from([1, 2, 8, 64]), st.floats(1, 1e10))
def test_slower_links_and_more_bytes_never_take_less(ranks: int, stride: int, size: float) -> None:
    fast = Network("fast", 8, Link(4e11, 3e-6), Link(5e10, 8e-6))
    slow = Network("slow", 8, Link(4e11, 3e-6), Link(1e9, 8e-6))
    for name in ("all_gather", "all_reduce", "all_to_all", "send"):
        seconds = getattr(RankGroup(fast, ranks, stride), name)(size)
        assert 0 < seconds <= getattr(RankGroup(slow, ranks, stride), name)(size)
        assert seconds < getattr(RankGroup(fast, ranks, stride), name)(2 * size)


def test_one_rank_does_not_communicate() -> None:
    alone = RankGroup(FLAT, 1)
    assert alone.all_gather(1e9) == alone.all_reduce(1e9) == alone.all_to_all(1e9) == alone.send(1e9) == 0
