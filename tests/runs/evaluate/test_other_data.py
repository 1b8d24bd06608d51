"""Other data than a run's own: which part of them is evaluated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qkv.data.readers.labelled_text import Labelled
from qkv.data.readers.time_series import TimeSeries
from qkv.runs.evaluate.other_data import as_trained, check_changed, notes_on_other
from qkv.runs.tasks.forecasting.task import Forecast


def labelled(path: Path, **settings: str) -> Labelled:
    path.write_text("text,label\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(20)))
    return Labelled(path=str(path), text="text", label="label", **settings)


def test_new_training_files_do_not_pass_for_the_files_that_are_evaluated(tmp_path: Path) -> None:
    source = labelled(tmp_path / "new.csv", test_path=str(tmp_path / "test.csv"))
    with pytest.raises(
        ValueError, match=r"read from data.test_path, .*test.csv.* give test_path=FILE in place of path="
    ):
        check_changed(source, "test", ["path=new.csv"])
    check_changed(source, "test", ["path=new.csv", "data.test_path=test.csv"])
    check_changed(source, "validation", ["path=new.csv"])
    check_changed(source, "train", ["path=new.csv"])


def test_the_evaluated_part_of_other_data_is_told(tmp_path: Path) -> None:
    old, new = labelled(tmp_path / "old.csv"), labelled(tmp_path / "new.csv")
    assert "only the part that is held out for test is evaluated; test_path=FILE" in notes_on_other(new, old, "test")[0]
    assert notes_on_other(old, old, "test") == []
    given = new.replace({"test_path": str(tmp_path / "old.csv")})
    assert not any("only the part" in note for note in notes_on_other(given, old, "test"))


def series(path: Path, values: np.ndarray, names: str = "load,heat") -> TimeSeries:
    rows = "".join(",".join(map(repr, row)) + "\n" for row in values.tolist())
    path.write_text(f"{names}\n{rows}")
    return TimeSeries(path=str(path), history=4, horizon=2)


def test_a_series_is_scaled_as_the_training_data_were(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal([5.0, 100.0], [2.0, 30.0], (60, 2))
    trained = series(tmp_path / "trained.csv", values)
    center, spread = (tuple(one.tolist()) for one in trained.scaling())
    task = Forecast(history=4, horizon=2, tokens=2, columns=("load", "heat"), center=center, spread=spread)
    other = values * 3 + 7
    new = series(tmp_path / "new.csv", other)
    first = as_trained(new, task).table("test")[0]
    begin = int(60 * 0.8) - 4
    np.testing.assert_allclose(first["history"], (other[begin : begin + 4] - center) / spread, rtol=1e-4)
    np.testing.assert_allclose(first["future"], (other[begin + 4 : begin + 6] - center) / spread, rtol=1e-4)
    (note, *_) = notes_on_other(new, trained, "test", task)
    assert (
        "the last rows of this series are evaluated; its columns are scaled by the mean and standard deviation of"
        in note
    )
    assert note.endswith("the run's training data.")
    assert as_trained(new, None) is new


def test_a_column_that_the_training_data_lack_is_scaled_by_its_own(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal([5.0, 100.0], [2.0, 30.0], (60, 2))
    new = series(tmp_path / "new.csv", values, "load,wind")
    task = Forecast(history=4, horizon=2, tokens=2, columns=("load",), center=(1.0,), spread=(2.0,))
    history = as_trained(new, task).table("train")[0]["history"]
    wind = values[:42, 1]
    np.testing.assert_allclose(history[:, 0], (values[:4, 0] - 1) / 2, rtol=1e-4)
    np.testing.assert_allclose(history[:, 1], (values[:4, 1] - wind.mean()) / wind.std(), rtol=1e-4)
    (note, *_) = notes_on_other(new, new.replace({"path": "gone.csv"}), "validation", task)
    assert "the rows of the validation split" in note and "and wind, which these lack, by" in note
    with pytest.raises(ValueError, match="the data have a column 'wind', and the run knows only the scale of load"):
        as_trained(new, task.replace({"normalized": False}))
