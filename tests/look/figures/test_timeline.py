"""Time lines: spans begin and end where they should."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qkv.look.figures.timeline import WorkSpan, chart, timeline


def test_spans_lie_on_one_scale_and_kinds_have_colors(tmp_path: Path):
    rows = {
        "stage 0": [WorkSpan(0, 1, "forward", "0"), WorkSpan(3, 2, "backward", "0")],
        "stage 1": [WorkSpan(1, 1, "forward", "0")],
    }
    timeline(tmp_path / "a.svg", "Pipeline", rows)
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    found = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="22" class="(bar s\d|sheet)"', drawn)
    left = float(next(x for x, _, kind in found if kind == "sheet"))
    unit = float(next(w for _, w, kind in found if kind == "sheet")) / 5
    bars = [(float(x) - left, kind) for x, _, kind in found if kind != "sheet"]
    assert bars == [
        (pytest.approx(0), "bar s0"),
        (pytest.approx(3 * unit, abs=0.1), "bar s1"),
        (pytest.approx(unit, abs=0.1), "bar s0"),
    ]
    assert ">forward<" in drawn and ">backward<" in drawn and ">stage 1<" in drawn


def test_an_empty_time_line_is_refused():
    with pytest.raises(ValueError, match="nothing"):
        chart("Pipeline", {"stage 0": []})
