"""Timestamps out of order are errors, and uneven steps are noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.data.readers.time_series import TimeSeries


def dated(path: Path, times: list[str]) -> TimeSeries:
    path.write_text("\n".join(["date,load", *(f"{time},{i}" for i, time in enumerate(times))]) + "\n")
    return TimeSeries(path=str(path), history=2, horizon=1)


def test_time_passes(tmp_path: Path) -> None:
    days = [f"2024-01-{day:02}" for day in range(1, 32)]
    months = [f"{2020 + k // 12}-{k % 12 + 1:02}-01" for k in range(48)]
    for times in (days, months, [f"day {k}" for k in range(30)]):
        (header,) = dated(tmp_path / "a.csv", times).notes()
        assert header.startswith("the first line of 'a.csv' is read as names, date, load")
    note, _ = dated(tmp_path / "b.csv", [*days[:10], *days[13:20], *days[24:]]).notes()
    assert note.startswith(
        "2 of 24 rows come at another time than 1 day, 0:00:00 after the one before (row 12, is the first)"
    )
    hours = [f"2024-01-01 {hour:02}:00" for hour in range(24)]
    for name, times, row in (("c", days[::-1], 3), ("d", days[:20] * 2, 22), ("e", hours[::-1], 3)):
        with pytest.raises(ValueError, match=rf"{name}\.csv, row {row} is of 2024-01-.*, before the row above it"):
            dated(tmp_path / f"{name}.csv", times).table("train")


def test_a_clock_that_is_set_back_is_noted(tmp_path: Path) -> None:
    hours = [f"2024-10-27 {hour:02}:00" for hour in (0, 1, 2, 2, 3, 4, 5, 6, 7, 8)]
    hours.insert(3, "2024-10-27 01:30")
    assert "row 5" in dated(tmp_path / "a.csv", hours).notes()[0]
