"""Prompts: rows are padded, and grouped by length within a bound."""

from __future__ import annotations

import pytest

from qkv.generation.prompts import length_groups, padded

LENGTHS = [700, 1, 30, 4000, 9000, 2, 2, 650]


def test_groups_hold_every_row_once_and_stay_within_the_bound() -> None:
    groups = list(length_groups([length + 10 for length in LENGTHS], 4096))
    assert sorted(i for group in groups for i in group) == list(range(len(LENGTHS)))
    for group in groups:
        assert len(group) == 1 or len(group) * (max(LENGTHS[i] for i in group) + 10) <= 4096


def test_rows_that_must_not_be_padded_have_one_length_per_group() -> None:
    groups = list(length_groups(LENGTHS, 4096, padded=False))
    assert sorted(i for group in groups for i in group) == list(range(len(LENGTHS)))
    assert all(len({LENGTHS[i] for i in group}) == 1 for group in groups) and [5, 6] in groups


def test_rows_are_padded_on_the_right() -> None:
    ids, layout = padded([[1, 2, 3], [], [4]])
    assert ids.tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0]]
    assert layout.valid.tolist() == [[True] * 3, [False] * 3, [True, False, False]]
    with pytest.raises(ValueError, match=r"put a single prompt into a list"):
        padded([1, 2])  # type: ignore[list-item]
