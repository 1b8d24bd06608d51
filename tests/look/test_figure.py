"""Figures: a file that an XML parser reads, with every chart in it and a color for each line."""

from __future__ import annotations

from xml.etree import ElementTree

from qkv.look.chart import Series, line_chart
from qkv.look.figure import HEIGHT, WIDTH, figure


def test_charts_stand_side_by_side_and_their_lines_have_colors():
    lines = [Series(f"line {i}", [(1, 1), (2, i)]) for i in range(4)]
    chart = line_chart("Both <ways>", lines, width=WIDTH, height=HEIGHT)
    page = figure(chart, chart)
    root = ElementTree.fromstring(page)
    placed = [child for child in root if child.tag.endswith("}svg")]
    assert [child.get("x") for child in placed] == ["16", str(32 + WIDTH)]
    assert float(root.get("width", 0)) == 48 + 2 * WIDTH
    assert all(page.count(f".line.s{i} {{") == 2 for i in range(4)), "light and dark"
