"""Tables are cut and say so; numbers are formatted for reading."""

from __future__ import annotations

import json

import pytest
import torch

from qkv.learn.explain.explanation import Explanation
from qkv.learn.explain.steps import Step, dot, listing, matrix, number, numbers


def test_numbers_have_four_decimals_or_none():
    assert numbers([1.0, 2.0]) == ["1", "2"]
    assert numbers([1.0, 2.5, None, "x"]) == ["1.0000", "2.5000", "", "x"]
    assert number(-torch.inf) == "−∞" and number(float("nan")) == "NaN" and number(-0.00000001) == "−1e−08"
    assert number(-1.5) == "−1.5000" and number(12345.67) == "12,345.7" and numbers([-0.0, 1.0]) == ["0", "1"]


def test_a_dot_product_is_written_out():
    assert dot([2.0, 1.0], [1.0, 0.0]) == "2 · 1 + 1 · 0 = 2"
    assert dot([0.5], [-1.0]) == "0.5000 · (−1) = −0.5000"
    assert dot([1.0] * 9, [1.0] * 9) == "9"


def test_a_long_matrix_is_cut_around_a_row():
    rows = [f"t{i}" for i in range(40)]
    table = matrix(torch.arange(40.0 * 20).view(40, 20), rows, caption="big", around=30)
    assert table.rows == tuple(rows[19:31]) and len(table.columns) == 12
    assert table.note == "Shown: 12 of 40 rows and 12 of 20 columns."
    assert matrix(torch.ones(2, 3), ["a", "b"]).note == ""


def test_a_long_listing_keeps_the_largest_and_names_the_rest():
    weights = torch.arange(20.0) / 190
    table = listing([f"t{i}" for i in range(20)], {"weight": weights}, by="weight")
    assert table.rows == tuple(f"{i} t{i}" for i in range(8, 20))
    assert table.note == "Shown: the 12 of 20 rows with the largest weight; that of the others adds up to 0.1474."
    assert listing([f"t{i}" for i in range(20)], {"x": weights}).note == "Shown: 12 of 20 rows."


def test_json_has_null_for_masked_scores():
    step = Step("one", tables=(matrix(torch.tensor([[1.0, -torch.inf]]), ["a"], caption="s"),))
    explanation = Explanation("x", "X", "about", (step,))
    tree = json.loads(json.dumps(explanation.to_dict(), allow_nan=False))
    assert tree["steps"][0]["tables"][0]["values"] == [[1.0, None]]
    assert explanation.table("s").texts() == [["1", "−∞"]]
    with pytest.raises(KeyError, match="nothing"):
        explanation.table("nothing")
