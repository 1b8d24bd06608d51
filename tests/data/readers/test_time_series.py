"""Series in windows: what each split sees, how values are scaled, and what is no series."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qkv.data import Source
from qkv.data.readers.time_series import TimeSeries
from qkv.data.synthetic.waves import Waves


def written(path: Path, rows: int = 100) -> Path:
    lines = [f"2024-01-01 {i:02},{i},{2 * i}" for i in range(rows)]
    path.write_text("\n".join(["date,load,price", *lines]) + "\n")
    return path


def test_windows_follow_one_another(tmp_path: Path) -> None:
    source = TimeSeries(path=str(written(tmp_path / "a.csv")), history=4, horizon=2, shares=(0.5, 0.2, 0.3))
    train = source.table("train")
    assert len(train) == 50 - 4 - 2 + 1
    first, second = train[0], train[1]
    np.testing.assert_array_equal(first["history"][1:], second["history"][:-1])
    assert first["history"].shape == (4, 2) and first["future"].shape == (2, 2) and first["names"] == ("load", "price")


def test_scaled_by_the_training_split_alone(tmp_path: Path) -> None:
    source = TimeSeries(path=str(written(tmp_path / "a.csv")), history=4, horizon=2, shares=(0.5, 0.2, 0.3))
    mean, scale = np.arange(50).mean(), np.arange(50).std()
    test = source.table("test")
    assert len(test) == 30 - 2 + 1  # it looks back into the split before
    np.testing.assert_allclose(test[0]["history"][:, 0], (np.arange(66, 70) - mean) / scale, rtol=1e-5)
    np.testing.assert_allclose(test[0]["future"][:, 1], (np.arange(70, 72) - mean) / scale, rtol=1e-5)


def test_rows_say_which_stretch_is_whose(tmp_path: Path) -> None:
    path = str(written(tmp_path / "a.csv"))
    source = TimeSeries(path=path, history=4, horizon=2, rows=(60, 20, 10))
    assert [len(source.table(split)) for split in ("train", "validation", "test")] == [55, 19, 9]
    with pytest.raises(ValueError, match="100 rows, and rows asks for 90 \\+ 20 \\+ 10"):
        TimeSeries(path=path, rows=(90, 20, 10), history=4, horizon=2).table("train")


@pytest.mark.parametrize(
    "text, said",
    [
        ("a,b\n1,2\n3\n", "row 3: 1 cells, and 2 in the first"),
        ("a,b\n1,2\n3,\n", "row 3, b: '' is no number; data.gaps=fill"),
        ("a,b\n1,2\nnan,4\n", "row 3, a: 'nan' is no finite number"),
        ("a,b\n", "no row of numbers"),
    ],
)
def test_what_is_no_series_says_where(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(ValueError, match=said):
        TimeSeries(path=str(tmp_path / "bad.csv"), history=1, horizon=1).table("train")


def test_gaps_are_filled_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "gaps.csv").write_text("a\n" + "\n".join(["1", "2", "x", "4"] * 10))
    values, _ = TimeSeries(path=str(tmp_path / "gaps.csv"), history=2, horizon=1, gaps="fill").values()
    assert values[:4, 0].tolist() == [1, 2, 2, 4]


def test_filled_cells_are_counted_and_one_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("t,a,b\n2024-01-01,1,2\n2024-01-02,(3.5),4\n2024-01-03,,5\n2024-01-04,6,7\n")
    source = TimeSeries(path=str(tmp_path / "s.csv"), gaps="fill", history=1, horizon=1)
    assert source.values()[0].tolist() == [[1, 2], [1, 4], [1, 5], [6, 7]]
    said = "2 of 8 cells have no number and repeat the value above (data.gaps=fill), for example row 3, a: '(3.5)'"
    assert said in source.notes()


def test_json_lines_and_parquet_hold_the_series_of_the_csv(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rows = [(f"2024-01-{i + 1:02}", 1.5 * i, bool(i % 3)) for i in range(20)]
    frame = pandas.DataFrame(rows, columns=["day", "load", "holiday"])
    frame.to_csv(tmp_path / "s.csv", index=False)
    frame.to_json(tmp_path / "s.jsonl", orient="records", lines=True)
    frame.to_json(tmp_path / "s.json", orient="records")
    frame.assign(day=pandas.to_datetime(frame.day)).to_parquet(tmp_path / "s.parquet")
    for name in ("s.csv", "s.jsonl", "s.json", "s.parquet"):
        values, names = TimeSeries(path=str(tmp_path / name), history=4, horizon=2).values()
        assert names == ("load", "holiday")
        np.testing.assert_array_equal(values, frame[["load", "holiday"]].astype("float32"))


def test_columns_by_name_and_number(tmp_path: Path) -> None:
    path = str(written(tmp_path / "a.csv"))
    by_name = TimeSeries(path=path, columns=("price",)).values()
    by_number = TimeSeries(path=path, columns=(2,)).values()
    np.testing.assert_array_equal(by_name[0], by_number[0])
    with pytest.raises(ValueError, match="no column 'cost'; it has date, load, price"):
        TimeSeries(path=path, columns=("cost",)).values()


def test_too_little_for_a_window_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="fewer than a history of 96 and a horizon of 24"):
        Waves(length=200).table("validation")


def test_numbers_beyond_float32_and_broken_csv_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "1,2\n" * 40 + "1e300,2\n")
    with pytest.raises(ValueError, match="row 42, a: '1e300' is no finite number"):
        TimeSeries(path=str(path), history=4, horizon=2).table("train")
    path.write_bytes(b'a,b\n"1,2\n')
    with pytest.raises(ValueError, match=r"x\.csv', line 2, is not valid CSV"):
        TimeSeries(path=str(path), history=4, horizon=2).table("train")
    path.write_bytes(("a,b\n" + "1,2\n" * 40).encode("utf-16"))
    assert len(TimeSeries(path=str(path), history=4, horizon=2).table("train")) > 0


def test_separators_decimal_commas_and_dates_of_other_formats(tmp_path: Path) -> None:
    expected = TimeSeries(path=str(written(tmp_path / "a.csv")), history=4, horizon=2).values()
    rows = [(f"{i % 28 + 1:02}.{i // 28 + 1:02}.2024", f"{i},0", f"{2 * i},0") for i in range(100)]
    for name, sep, setting in (
        ("b.csv", ";", None),
        ("c.csv", "|", "pipe"),
        ("d.tsv", "\t", None),
        ("e.txt", "\t", "\\t"),
    ):
        lines = [sep.join(row) for row in [("date", "load", "price"), *rows]]
        (tmp_path / name).write_text("\n".join(lines))
        source = TimeSeries(
            path=str(tmp_path / name), sep=setting, decimal=",", date_format="%d.%m.%Y", history=4, horizon=2
        )
        values, names = source.values()
        np.testing.assert_array_equal(values, expected[0])
        assert names == ("load", "price") and Source.from_json(source.to_json()) == source
        assert "3 of 100 rows come at another time than 1 day" in source.notes()[0]
    with pytest.raises(
        ValueError, match=r"b\.csv, row 2: '01\.01\.2024' is not a date in the format '%Y' \(data\.date_format\)"
    ):
        TimeSeries(path=str(tmp_path / "b.csv"), decimal=",", date_format="%Y").values()
    with pytest.raises(
        ValueError, match=r"row 2, load: '0,0' is no number with a decimal point; data\.decimal=',' reads"
    ):
        TimeSeries(path=str(tmp_path / "b.csv")).values()


def test_dates_without_separators_are_dates_if_a_format_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n".join(f"202401{day:02},{day}" for day in range(31, 0, -1)))
    with pytest.raises(ValueError, match=r"row 2 is of 20240130, before the row above it \(20240131\)"):
        TimeSeries(path=str(tmp_path / "a.csv"), date_format="%Y%m%d").values()
    assert TimeSeries(path=str(tmp_path / "a.csv")).values()[0].shape == (31, 2)


@pytest.mark.parametrize("sep", ["", "ab", '"', "\n", "7", "."])
def test_what_can_not_separate_cells_is_refused(sep: str) -> None:
    with pytest.raises(
        ValueError, match=r"one character, such as ';', or its name \(comma, semicolon, tab, pipe, space\)"
    ):
        TimeSeries(path="a.csv", sep=sep)


def test_a_title_and_names_again_are_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    names, rows = "load,price\n", "".join(f"{i},{2 * i}\n" for i in range(40))
    path.write_text(f"Sensor 7\n{names}{rows}{names}{rows}")
    source = TimeSeries(path=str(path), history=4, horizon=2, gaps="fill")
    values, found = source.values()
    assert found == ("load", "price") and values[:, 0].tolist() == [*range(40), *range(40)]
    notes = " ".join(source.notes())
    assert "line 1 ('Sensor 7')" in notes and "1 row with the column names again left out" in notes


def test_large_numbers_keep_their_differences(tmp_path: Path) -> None:
    (tmp_path / "meter.csv").write_text("meter,load\n" + "".join(f"{10**15 + i},{i % 7}\n" for i in range(100)))
    source = TimeSeries(path=str(tmp_path / "meter.csv"), history=4, horizon=2)
    meter = source.table("train")[0]["history"][:, 0]
    assert meter.dtype == np.float32 and np.diff(meter) == pytest.approx(1 / np.std(np.arange(70)), rel=1e-5)
    assert not any("constant" in note for note in source.notes())


def test_two_columns_of_one_name_and_none_of_numbers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("load,load\n" + "".join(f"{i},{i % 7}\n" for i in range(100)))
    with pytest.raises(ValueError, match="has two columns 'load'"):
        TimeSeries(path=str(tmp_path / "two.csv")).values()
    assert TimeSeries(path=str(tmp_path / "two.csv"), columns=[1]).values()[0][1, 0] == 1
    days = "".join(f"2024-01-{i:02},{i}.5\n" for i in range(1, 29))
    (tmp_path / "commas.csv").write_text("day,load\n" + days)
    with pytest.raises(ValueError, match="has no column of numbers, only day,load"):
        TimeSeries(path=str(tmp_path / "commas.csv"), decimal=",").values()
