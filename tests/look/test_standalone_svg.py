"""Figures: a file that an XML parser reads, with every chart in it and a color for each line."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from qkv.look.chart import Series, line_chart
from qkv.look.standalone_svg import HEIGHT, WIDTH, figure, save, size


def test_charts_stand_one_below_the_other_and_their_lines_have_colors():
    lines = [Series(f"line {i}", [(1, 1), (2, i)]) for i in range(4)]
    chart = line_chart("Both <ways>", lines, width=WIDTH, height=HEIGHT)
    wide = line_chart("Wide", lines, width=2 * WIDTH, height=HEIGHT)
    page = figure(chart, wide)
    root = ElementTree.fromstring(page)
    (_, _, width, height) = map(float, root.attrib["viewBox"].split())
    placed = [{name: float(child.attrib[name]) for name in ("x", "y", "width", "height")} for child in charts_of(root)]
    first, second = placed
    assert [chart["width"] for chart in placed] == [WIDTH, WIDTH] and second["height"] == HEIGHT / 2
    assert first["y"] >= 0 and first["y"] + first["height"] <= second["y"], "neither covers the other"
    assert all(c["x"] + c["width"] <= width and c["y"] + c["height"] <= height for c in placed), "nor is one cut off"
    for scheme in page.split("prefers-color-scheme: dark"):
        colors = re.findall(r"\.line\.s(\d) { stroke: (#\w+)", scheme)
        assert len(colors) == 4, "one rule for each line, light and dark"
        assert {int(number) for number, _ in colors} == {0, 1, 2, 3} and len({color for _, color in colors}) == 4


def test_a_file_has_the_figure(tmp_path: Path):
    chart = line_chart("One", [Series("line", [(1, 1), (2, 2)])], width=WIDTH, height=HEIGHT)
    save(tmp_path / "a.svg", chart)
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == figure(chart)


def test_a_chart_without_a_size_is_refused():
    with pytest.raises(ValueError, match="viewBox"):
        size(Markup("<svg/>"))


def charts_of(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [child for child in root if child.tag.endswith("}svg")]
