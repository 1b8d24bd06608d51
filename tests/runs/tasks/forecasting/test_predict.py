"""Forecasts of new tables are the forecasts of the evaluation, in the units of the file."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from short_runs import Train, samples

from qkv.cli import main
from qkv.data.readers.time_series import SeriesSource, TimeSeries


@pytest.mark.parametrize("normalized", ["true", "false"])
def test_forecasts_match_the_evaluation(short_run: Train, tmp_path: Path, normalized: str) -> None:
    run = short_run("forecast", "data.length=600", "data.stride=24", f"task.normalized={normalized}")
    assert run.recipe is not None and isinstance(run.recipe.data, SeriesSource)
    values, names = run.recipe.data.values()
    center, spread = run.recipe.data.scaling()
    for sample in samples(run)[::4]:
        name, *rows = re.fullmatch(r"(.*), rows (\d+) to (\d+)", sample["source"]).groups()  # type: ignore[union-attr]
        until, column = int(rows[1]) - 24, names.index(name)
        path = table(tmp_path / "series.csv", names, values[:until])
        (one,) = run.predict([path])
        assert one.value.shape == (24, 3)
        wanted = np.array(sample["picture"]["made"]) * spread[column] + center[column]
        assert one.value[:, column] == pytest.approx(wanted, abs=1e-4)


def table(path: Path, names: Sequence[str], values: Any) -> Path:
    """A CSV file with dates before the numbers."""
    rows = ("".join(f",{float(value)!r}" for value in row) for row in values)
    path.write_text("date," + ",".join(names) + "\n" + "".join(f"day {i}{row}\n" for i, row in enumerate(rows)))
    return path


def test_a_forecast_is_in_the_files_units_whatever_these_are(short_run: Train, tmp_path: Path) -> None:
    run = short_run("forecast", "data.length=600", "data.stride=24", "task.normalized=true")
    assert run.recipe is not None and isinstance(run.recipe.data, SeriesSource)
    values, names = run.recipe.data.values()
    known = run.predict([table(tmp_path / "known.csv", names, values)])[0]
    other = run.predict([table(tmp_path / "other.csv", ["a", "b", "c"], 1000 * values + 50)])[0]
    assert other.value == pytest.approx(1000 * known.value + 50, rel=1e-3, abs=1)
    (written,) = other.write(tmp_path / "out")
    assert written.name == "other.forecast.csv" and written.read_text() == other.text + "\n"
    again, columns = TimeSeries(path=str(written)).values()
    assert columns == ("a", "b", "c") and again == pytest.approx(other.value, rel=1e-5)
    plain = short_run("forecast", "data.length=600", "data.stride=24", "task.normalized=false")
    with pytest.raises(ValueError, match="has a column 'a', and the run knows the scale of wave 1, wave 2, wave 3"):
        plain.predict([tmp_path / "other.csv"])
    with pytest.raises(ValueError, match="has 50 rows, and a forecast looks back on 96"):
        run.predict([table(tmp_path / "short.csv", names, values[:50])])
    with pytest.raises(ValueError, match=r"there is no file 'no\.csv'"):
        run.predict(["no.csv"])


def hourly(path: Path, names: Sequence[str], hours: int = 1, rows: int = 130, gap: bool = False) -> Path:
    """A table of waves with a time every few hours; the ending tells the form."""
    begin = datetime(2024, 3, 1)
    table = {
        "time": [begin + timedelta(hours=hours * i) for i in range(rows)],
        **{name: [math.sin(i / 5 + j) for i in range(rows)] for j, name in enumerate(names)},
    }
    if path.suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.table(table), path)
        return path
    lines = [f"time,{','.join(names)}", *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    if gap:
        lines[12] = f"{lines[12].split(',')[0]},,0"
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_a_forecast_reads_what_training_reads_and_tells_what_is_unlike(
    short_run: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = hourly(tmp_path / "known.csv", ["load", "temp"], rows=600)
    run = short_run("forecast", f"data={{kind: series, path: {known}}}", "data.stride=24")
    assert run.recipe is not None and run.recipe.task is not None and getattr(run.recipe.task, "step", None) == 3600

    def said(name: str, names: Sequence[str], *more: str, hours: int = 1, gap: bool = False) -> tuple[int, str, str]:
        status = main(["predict", str(run.path), str(hourly(tmp_path / name, names, hours, gap=gap)), *more])
        return status, *capsys.readouterr()

    same = said("same.csv", ["load", "temp"])
    assert same[0] == 0 and not same[2] and len(same[1].splitlines()) == 25
    for name in ("a.parquet", "b.csv.gz"):
        assert said(name, ["load", "temp"]) == same
    with pytest.warns(UserWarning, match="its rows are 2:00:00 apart, and those of the training 1:00:00"):
        assert run.predict(hourly(tmp_path / "slow.csv", ["load", "temp"], 2)).text + "\n" == same[1]
    with pytest.warns(UserWarning, match=r"training had no column Load, Temp \(but load, temp\)"):
        run.predict(hourly(tmp_path / "case.csv", ["Load", "Temp"]))
    status, _, err = said("gap.csv", ["load", "temp"], gap=True)
    assert status == 2 and "for a forecast such settings are given as --data gaps=fill" in err
    assert said("gap.csv", ["load", "temp"], "--data", "gaps=fill", gap=True) == same
    assert said("gap.csv", ["load", "temp"], "--data", "data.columns=[temp]", gap=True)[1].splitlines()[0] == "temp"
    assert run.predict(tmp_path / "gap.csv", data="gaps=fill").text + "\n" == same[1]
    status, _, err = said("a.parquet", ["load", "temp"], "--column", "load")
    assert status == 2 and "choose a series' columns by --data columns=[NAME,…]" in err
    lines = (tmp_path / "same.csv").read_text().splitlines()[1:]
    rows = [dict(zip(("time", "load", "temp"), line.split(","), strict=True)) for line in lines]
    numbers = [{**row, "load": float(row["load"]), "temp": float(row["temp"])} for row in rows]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in numbers))
    assert run.predict(tmp_path / "x.jsonl").text + "\n" == same[1]
