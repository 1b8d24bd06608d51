"""Line charts in a file: every line has its name, its color and its dots."""

from __future__ import annotations

import re
from pathlib import Path

from qkv.look.figures.lines import lines


def test_lines_are_written_with_their_names(tmp_path: Path):
    series = {"one": [(1, 1.0), (10, 10.0)], "two": [(1, 100.0), (10, 1000.0)]}
    lines(tmp_path / "a.svg", "Growth", series, x_label="tokens", log=True, log_x=True, dots=True)
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<svg xmlns") and re.findall(r'chart-title">([^<]+)', drawn) == ["Growth"]
    assert drawn.count("<circle") == 4 and 'class="line s1"' in drawn and ">two<" in drawn and ">tokens<" in drawn
