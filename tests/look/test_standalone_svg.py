"""Figures: a file that an XML parser reads, with every chart in it and a color for each line."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from qkv.look.chart import Series, line_chart
from qkv.look.standalone_svg import HEIGHT, WIDTH, figure


def test_charts_stand_side_by_side_and_their_lines_have_colors():
    lines = [Series(f"line {i}", [(1, 1), (2, i)]) for i in range(4)]
    chart = line_chart("Both <ways>", lines, width=WIDTH, height=HEIGHT)
    page = figure(chart, chart)
    root = ElementTree.fromstring(page)
    (_, _, width, height) = map(float, root.attrib["viewBox"].split())
    placed = [{name: float(child.attrib[name]) for name in ("x", "y", "width", "height")} for child in charts_of(root)]
    first, second = placed
    assert [chart["x"] for chart in placed] == [16, 32 + WIDTH] and width == float(
        root.attrib["width"]
    ) == 48 + 2 * WIDTH
    assert first["x"] >= 0 and first["x"] + first["width"] <= second["x"], "neither covers the other"
    assert all(c["x"] + c["width"] <= width and c["y"] + c["height"] <= height for c in placed), "nor is one cut off"
    for scheme in page.split("prefers-color-scheme: dark"):
        colors = re.findall(r"\.line\.s(\d) { stroke: (#\w+)", scheme)
        assert len(colors) == 4, "one rule for each line, light and dark"
        assert {int(number) for number, _ in colors} == {0, 1, 2, 3} and len({color for _, color in colors}) == 4


def charts_of(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [child for child in root if child.tag.endswith("}svg")]
