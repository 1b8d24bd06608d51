from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.batching.packing import pack, pack_pairs


@given(st.lists(st.integers(1, 40), max_size=80), st.integers(40, 64))
def test_every_document_stands_in_one_row_and_every_row_fits(lengths: list[int], width: int) -> None:
    rows = pack(lengths, width)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in row) <= width for row in rows)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=80), st.integers(30, 64))
def test_close_to_the_least_number_of_rows(lengths: list[int], width: int) -> None:
    assert len(pack(lengths, width)) <= 11 / 9 * _optimum_bound(lengths, width) + 1


def _optimum_bound(lengths: list[int], width: int) -> float:
    """No packing has fewer rows than the rows of another packing that is at most twice as many; the volume bound."""
    more_than_half = sum(length > width / 2 for length in lengths)
    return max(math.ceil(sum(lengths) / width) * 1.5, more_than_half)


def test_the_tightest_row_is_taken() -> None:
    assert pack([6, 5, 4, 3], 10) == [[0, 2], [1, 3]]


def test_a_document_longer_than_a_row_is_an_error() -> None:
    with pytest.raises(ValueError, match="11 tokens doesn't fit a row of 10"):
        pack([11], 10)


PAIRS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=60)


@given(PAIRS, st.integers(40, 64))
def test_every_pair_stands_in_one_row_and_every_row_fits_on_both_sides(
    pairs: list[tuple[int, int]], width: int
) -> None:
    rows = pack_pairs([a for a, _ in pairs], [b for _, b in pairs], width)
    assert sorted(i for row in rows for i in row) == list(range(len(pairs)))
    for side in (0, 1):
        assert all(sum(pairs[i][side] for i in row) <= width for row in rows)
    for a, row in enumerate(rows):  # no pair had room in a row that was there before its own
        for other in rows[:a]:
            assert any(sum(pairs[i][side] for i in [*other, row[0]]) > width for side in (0, 1))


def test_pairs_whose_sides_are_equal_are_packed_like_documents() -> None:
    lengths = [6, 5, 4, 3]
    assert pack_pairs(lengths, lengths, 10) == pack(lengths, 10)
    with pytest.raises(ValueError, match="a side of 11 tokens doesn't fit a row of 10"):
        pack_pairs([1], [11], 10)
    assert pack_pairs([], [], 10) == []
