"""Rows of a batch are split over ranks: each belongs to one, and costs are about equal."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.batching.sharding import WHOLE, Shard, Share, share_of

LENGTHS = st.lists(st.integers(1, 5000), min_size=1, max_size=30)


def shares(lengths: list[int], size: int) -> list[Share]:
    rows = np.array(lengths)
    return [share_of(Shard(rank, size), rows, np.zeros_like(rows)) for rank in range(size)]


@given(LENGTHS, st.integers(1, 12))
def test_every_row_belongs_to_one_rank_and_none_waits_while_another_has_two(lengths: list[int], size: int) -> None:
    found = shares(lengths, size)
    assert [row for share in found if not share.idle for row in range(share.start, share.stop)] == list(
        range(len(lengths))
    )
    assert all(share == (0, 1, True) for share in found if share.idle)
    assert not any(share.idle for share in found) or max(share.stop - share.start for share in found) == 1


def test_boundaries_are_where_costs_are_equal() -> None:
    assert shares([10] * 6, 3) == [(0, 2, False), (2, 4, False), (4, 6, False)]
    assert shares([1, 1, 1, 1, 4], 2) == [(0, 4, False), (4, 5, False)]
    assert shares([5], 3) == [(0, 1, False), (0, 1, True), (0, 1, True)]


def test_a_long_row_costs_the_square_of_its_length() -> None:
    """Rows of 64 tokens cost 65, and one of 4096 costs 8192, so a third of all is in row 63; by tokens, in 43."""
    assert shares([64] * 64 + [4096], 3) == [(0, 63, False), (63, 64, False), (64, 65, False)]


def test_both_sides_of_a_pair_count_and_one_rank_has_all() -> None:
    target, source = np.array([1, 1, 8]), np.array([8, 1, 1])
    assert share_of(Shard(0, 2), target, source) == (0, 1, False)
    assert share_of(WHOLE, target, source) == (0, 3, False)
