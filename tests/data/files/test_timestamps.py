"""Timestamps out of order are errors, and uneven steps are noted."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

from qkv.data.files.timestamps import leaps
from qkv.data.readers.time_series import TimeSeries


def dated(path: Path, times: list[str]) -> TimeSeries:
    path.write_text("\n".join(["date,load", *(f'"{time}",{i}' for i, time in enumerate(times))]) + "\n")
    return TimeSeries(path=str(path), history=2, horizon=1)


def test_time_passes(tmp_path: Path) -> None:
    days = [f"2024-01-{day:02}" for day in range(1, 32)]
    months = [f"{2020 + k // 12}-{k % 12 + 1:02}-01" for k in range(48)]
    for times in (days, months):
        header, columns = dated(tmp_path / "a.csv", times).notes()
        assert columns == "load is forecast, and date is not (data.columns)"
        assert header.startswith("the first line of 'a.csv' is read as names, date, load")
    note, *_ = dated(tmp_path / "b.csv", [*days[:10], *days[13:20], *days[24:]]).notes()
    assert note.startswith(
        "2 of 24 rows come at another time than 1 day, 0:00:00 after the one before (row 12 is the first)"
    )
    hours = [f"2024-01-01 {hour:02}:00" for hour in range(24)]
    for name, times, row in (("c", days[::-1], 3), ("d", days[:20] * 2, 22), ("e", hours[::-1], 3)):
        with pytest.raises(ValueError, match=rf"{name}\.csv, row {row} is of 2024-01-.*, before the row above it"):
            dated(tmp_path / f"{name}.csv", times).table("train")


def test_a_clock_that_is_set_back_is_noted(tmp_path: Path) -> None:
    hours = [f"2024-10-27 {hour:02}:00" for hour in (0, 1, 2, 2, 3, 4, 5, 6, 7, 8)]
    hours.insert(3, "2024-10-27 01:30")
    assert "row 5" in dated(tmp_path / "a.csv", hours).notes()[0]


FORMATS = [
    "%Y-%m-%d",
    "%m/%d/%Y",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%d-%b-%y",
    "%b %d, %Y",
    "%Y%m%d",
    "%m/%d/%Y %I:%M %p",
    "%d.%m.%y",
]


@pytest.mark.parametrize("form", FORMATS)
def test_dates_in_other_formats_are_in_order(tmp_path: Path, form: str) -> None:
    days = list(pandas.date_range("2023-11-20", periods=90))
    texts = [f"{day:{form}}" for day in days]
    assert list(pandas.to_datetime(texts, format=form)) == days
    source = dated(tmp_path / "a.csv", texts)
    assert source.times() == () and source.values()[1] == ("load",)
    with pytest.raises(ValueError, match=r"row 3 is of .*, before the row above it"):
        dated(tmp_path / "b.csv", texts[::-1]).values()
    (note,) = dated(tmp_path / "c.csv", texts[:40] + texts[50:]).times()
    assert "1 of 80 rows comes at another time than 1 day" in note and "row 42 alone" in note


def test_the_order_of_rows_tells_days_from_months(tmp_path: Path) -> None:
    days = [f"{day:02}/02/2024" for day in range(1, 13)]  # also the second of each month
    assert dated(tmp_path / "a.csv", days).times() == ()
    weeks = [f"{day:%d/%m/%Y}" for day in pandas.to_datetime(["2024-01-12", "2024-02-11", "2024-03-10", "2024-04-09"])]
    assert dated(tmp_path / "b.csv", weeks).times() == ()  # as months first, time goes backwards
    with pytest.raises(ValueError, match="whether days or months are first"):
        dated(tmp_path / "c.csv", days[::-1]).values()


@pytest.mark.parametrize(
    "times, step",
    [
        ([1700000000 + 3600 * i for i in range(30)], "1:00:00"),
        ([1700000000000 + 60000 * i for i in range(30)], "0:01:00"),
        ([1950 + i for i in range(30)], "1"),
        ([i / 4 for i in range(30)], "0.25"),
        ([f"{2000 + i // 4}Q{i % 4 + 1}" for i in range(30)], "91 days"),
        ([f"{2000 + i // 12}-{i % 12 + 1:02}" for i in range(30)], "31 days"),
    ],
)
def test_numbers_and_quarters_are_times_too(tmp_path: Path, times: list[object], step: str) -> None:
    cells = [str(time) for time in times]
    source = dated(tmp_path / "a.csv", cells)
    assert source.values()[1] == ("load",) and source.times() == ()
    with pytest.raises(ValueError, match=r"row 3 is of .*, before the row above it"):
        dated(tmp_path / "b.csv", cells[::-1]).values()
    (note,) = dated(tmp_path / "c.csv", cells[:10] + cells[20:]).times()
    assert f"at another time than {step}" in note


def test_times_in_no_known_format_are_not_checked_and_said(tmp_path: Path) -> None:
    (note,) = dated(tmp_path / "a.csv", [f"day {k}" for k in range(30)]).times()
    assert note.startswith("the order of the rows is not checked: 'day 0' is no date in a format that is known")
    days = [f"2024-01-{day:02}" for day in range(1, 32)]
    (note,) = dated(tmp_path / "b.csv", [*days[:5], "later", *days[5:]]).times()
    assert "'later' is no date" in note


@pytest.mark.parametrize(
    "header, row, kept, left_out",
    [
        ("timestamp,load,temp", "{t},1,{i}", ("load", "temp"), ("timestamp",)),
        ("load,Date (UTC),temp", "1,{t},{i}", ("load", "temp"), ("Date (UTC)",)),
        (",date,load", "{i},2024-01-{d:02},{i}", ("load",), ("", "date")),
        ("load,when", "{i},2024-01-{d:02}", ("load",), ("when",)),
        ("updates,year_built", "{t},{i}", ("updates", "year_built"), ()),
        ("temp,load", "{gap},{i}", ("temp", "load"), ()),
    ],
)
def test_columns_that_are_forecast(
    tmp_path: Path, header: str, row: str, kept: tuple[str, ...], left_out: tuple[str, ...]
) -> None:
    lines = (row.format(t=1700000000 + i, i=i, d=i + 1, gap="" if i == 0 else i) for i in range(20))
    (tmp_path / "a.csv").write_text("\n".join([header, *lines]) + "\n")
    source = TimeSeries(path=str(tmp_path / "a.csv"), header=True)
    if header == "temp,load":
        with pytest.raises(ValueError, match=r"row 2, temp: '' is no number; data\.gaps=fill"):
            source.values()
        return
    assert source.values()[1] == kept and source._read().left_out == left_out


@pytest.mark.parametrize(
    "header, form, left_out",
    [
        ("Date;Time;load", "%d/%m/%Y;%H:%M:%S", ("Date", "Time")),
        ("date;time;load", "%Y-%m-%d;%I:%M %p", ("date", "time")),
        ("year;month;day;hour;load", "%Y;%m;%d;%H", ("year", "month", "day", "hour")),
        ("timestamp;load", "%Y-%m-%d %H:%M:%S UTC", ("timestamp",)),
    ],
)
def test_times_in_several_columns_are_joined(tmp_path: Path, header: str, form: str, left_out: tuple[str, ...]) -> None:
    hours = [f"{time:{form}};{i}" for i, time in enumerate(pandas.date_range("2024-01-25", periods=300, freq="h"))]

    def read(name: str, rows: list[str]) -> TimeSeries:
        (tmp_path / name).write_text("\n".join([header, *rows]) + "\n")
        return TimeSeries(path=str(tmp_path / name))

    source = read("a.csv", hours)
    assert source._read().left_out == left_out and source.values()[1] == ("load",) and source.times() == ()
    (note,) = read("b.csv", hours[:50] + hours[60:]).times()
    assert "1 of 290 rows comes at another time than 1:00:00" in note
    with pytest.raises(ValueError, match=r"row 3 is of .*, before the row above it"):
        read("c.csv", hours[::-1]).values()


def test_rows_of_the_same_time_are_counted(tmp_path: Path) -> None:
    times = [f"{2000 + i // 10}" for i in range(30)]
    assert "27 of 30 rows have the time of the row before" in dated(tmp_path / "a.csv", times).times()[0]


def test_constant_columns_are_said(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("load,one,late\n" + "".join(f"{i},5,{max(0, i - 25)}\n" for i in range(30)))
    *_, note = TimeSeries(path=str(tmp_path / "a.csv")).notes()
    assert note.startswith("one, late are constant in the training split, easy to forecast, and lower the mean error")


def test_a_forecast_of_reversed_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("d,x\n" + "".join(f"{12 - i:02}/25/2024,{i}\n" for i in range(12)))
    with pytest.raises(ValueError, match=r"row 3 is of 11/25/2024, before the row above it"):
        TimeSeries(path=str(tmp_path / "a.csv")).values()


def test_a_time_given_twice_and_a_short_step_are_told() -> None:
    hours = [f"2024-10-27 {hour:02}:00" for hour in (0, 1, 2, 2, 3, 4, 5)]  # the clock goes back at three
    assert leaps(hours, 2) == (
        "1 of 7 rows comes at another time than 1:00:00 after the one before (row 5 alone), and is read as if it did not",
    )
    assert leaps([*hours[:3], "2024-10-27 02:30", *hours[4:]], 2)[0].startswith("2 of 7 rows come")
    assert not leaps([f"2024-{month:02}-01" for month in range(1, 13)], 1)
