"""Which slice of a parameter a rank has."""

from __future__ import annotations

import pytest
import torch

from qkv.training.parallel.model_parallel.division import ParameterSlice, shares


@pytest.mark.parametrize(
    ("whole", "unit", "ranks", "expected"),
    [
        (12, 1, 3, [(0, 4), (4, 4), (8, 4)]),
        (12, 4, 2, [(0, 4), (4, 8)]),  # three heads of width 4 on two ranks
        (10, 1, 4, [(0, 2), (2, 3), (5, 2), (7, 3)]),
        (8, 8, 2, [(0, 0), (0, 8)]),
    ],
)
def test_shares_are_whole_units_and_about_equal(
    whole: int, unit: int, ranks: int, expected: list[tuple[int, int]]
) -> None:
    assert shares(whole, unit, ranks) == expected


def test_neighboring_ranks_have_copies_if_there_are_fewer_units_than_ranks() -> None:
    part = ParameterSlice("tensor", 0, 4, 4, 8, unit=4, copies=2)
    assert part.places(4) == [(0, 4), (0, 4), (4, 4), (4, 4)]


def test_a_slice_is_a_piece_along_its_dimension() -> None:
    piece = ParameterSlice("tensor", 1, 6, 3, 9).piece(torch.Size((5, 3)))
    assert piece == ((0, 6), (5, 9))
