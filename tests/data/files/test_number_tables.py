"""Cells that are numbers, cells that look like numbers, and tables of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qkv.data.files.number_tables import NumberFormat, finite, number_table, spelling, what_not


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("1.5", 1.5),
        (" 2 ", 2.0),
        (3, 3.0),
        ("1e39", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        (None, None),
        ("1_0", None),
    ],
)
def test_a_number_is_finite_in_float32(cell: Any, number: float | None) -> None:
    assert finite(cell) == number


def test_what_a_cell_lacks_is_said() -> None:
    assert [what_not(cell) for cell in ("nan", "1e39", "x", None)] == ["finite number"] * 2 + ["number"] * 2


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("5 %", "a percent sign"),
        ("$ 1,250", "a currency sign"),
        ("1,234,567", "thousands separators"),
        ("1.234.567", "thousands separators"),
        ("1,5", "a decimal comma"),
        ("12 kg", "a unit"),
        ("12", None),
        ("1e400", None),
        ("word", None),
    ],
)
def test_a_number_in_another_spelling_is_recognized(cell: str, said: str | None) -> None:
    assert spelling(cell) == said


ROWS = [["2024-01-01", "1,5", "true"], ["2024-01-02", "", "false"], ["2024-01-03", "2,5", "true"]]


def test_columns_are_chosen_and_gaps_have_the_value_above() -> None:
    table = number_table("t.csv", ROWS, ("day", "heat", "open"), 2, NumberFormat(fill_gaps=True, decimal=","))
    assert table.names == ("heat", "open") and table.left_out == ("day",) and table.step == 86400
    np.testing.assert_array_equal(table.values, np.array([[1.5, 1], [1.5, 0], [2.5, 1]], np.float32))
    one = number_table("t.csv", ROWS, ("day", "heat", "open"), 2, NumberFormat(("open",)))
    assert one.names == ("open",) and one.left_out == ("day", "heat")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (ROWS, "t.csv, row 3, heat: "),
        ([*ROWS[:1], ["2024-01-02", "1"]], "t.csv, row 3: 2 cells, and 3 in the first row"),
        ([], "t.csv holds no row of numbers"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(rows: list[list[str]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        number_table("t.csv", rows, ("day", "heat", "open"), 2, NumberFormat(decimal=","))
