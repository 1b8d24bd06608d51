"""Series passed from Python: every form of a table gives the same numbers, known again by their fingerprint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qkv.data import Source
from qkv.data.memory_series import MemorySeries
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train import from_python

ROWS = [{"load": float(i), "price": i / 2} for i in range(60)]


@pytest.mark.parametrize("form", ["list", "array", "pandas", "dates", "polars", "dataset"])
def test_every_form_of_a_table_is_the_same_series(form: str) -> None:
    frame: Any = ROWS
    if form == "array":
        frame = np.array([list(row.values()) for row in ROWS])
    elif form in ("pandas", "dates"):
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        frame = pandas.DataFrame(ROWS, index=pandas.date_range("2024-01-01", periods=60) if form == "dates" else None)
    elif form == "polars":
        frame = pytest.importorskip("polars", reason="polars is not installed").DataFrame(ROWS)
    elif form == "dataset":
        frame = pytest.importorskip("datasets", reason="the library datasets is not installed").Dataset.from_list(ROWS)
    source = MemorySeries.of(frame, history=4, horizon=2)
    values, names = source.values()
    assert names == (("column 0", "column 1") if form == "array" else ("load", "price"))
    assert values[7].tolist() == [7, 3.5] and source.table("train")[0]["history"].shape == (4, 2)
    assert Source.from_dict(source.to_dict()) == source and "values" not in source.to_dict()


def test_what_is_no_series_names_its_row() -> None:
    with pytest.raises(ValueError, match="the data, row 3, price: 'x' is no number"):
        MemorySeries.of([*ROWS[:3], {"load": 1, "price": "x"}])
    with pytest.raises(ValueError, match="the data holds no row of numbers"):
        MemorySeries.of([])
    lost = MemorySeries(fingerprint="0" * 64, length=60)
    with pytest.raises(ValueError, match=r"\(60 rows, fingerprint 00000000\) was passed from Python and is not stored"):
        lost.table("train")


def test_the_recipe_forecast_takes_a_frame() -> None:
    recipe = Recipe.load("forecast", ["data.history=8", "data.horizon=2"])
    source = from_python._with_source(recipe, ROWS, None, None, {}).data
    assert isinstance(source, MemorySeries) and (source.history, source.horizon, source.length) == (8, 2, 60)
    with pytest.raises(ValueError, match="a series is split by time"):
        from_python._with_source(recipe, ROWS, ROWS, None, {})
