"""Bars: lengths in proportion to values, in groups by label."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qkv.look.figures.bars import bars, chart


def test_lengths_are_in_proportion_and_a_missing_value_has_no_bar(tmp_path: Path):
    bars(tmp_path / "a.svg", "Work", {"before": {"a": 4.0, "b": 1.0}, "after": {"a": 2.0}}, show="{:.0f} s".format)
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    widths = {
        color: [float(w) for w in re.findall(rf'width="([\d.]+)" height="11" class="bar {color}"', drawn)]
        for color in ("s0", "s1")
    }
    longest, shortest = widths["s0"][-2:]
    assert longest == pytest.approx(4 * shortest, rel=0.01) and widths["s1"][-1] == pytest.approx(longest / 2, rel=0.01)
    assert ">4 s<" in drawn and drawn.count(" s<") == 3 and ">after<" in drawn


def test_one_series_needs_no_legend():
    assert ">only<" not in chart("Work", {"only": {"a": 1.0}})


@pytest.mark.parametrize("series", [{}, {"a": {}}, {"a": {"b": -1.0}}])
def test_no_values_or_negative_ones_are_refused(series: dict[str, dict[str, float]]):
    with pytest.raises(ValueError, match="none below 0"):
        chart("Work", series)
