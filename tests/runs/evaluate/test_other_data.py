"""Other data than a run's own: which part of them is evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.data.readers.labelled_text import Labelled
from qkv.data.readers.time_series import TimeSeries
from qkv.runs.evaluate.other_data import check_changed, notes_on_other


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
    (tmp_path / "load.csv").write_text("load\n" + "".join(f"{i}\n" for i in range(40)))
    series = TimeSeries(path=str(tmp_path / "load.csv"), history=4, horizon=2)
    (note, *_) = notes_on_other(series, series.replace({"path": "gone.csv"}), "test")
    assert "its own training split, not by those of the run" in note
