"""Log–log charts: power laws are straight, bands and marks stand where they should, and names are escaped."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from qkv.lab.scaling.log_chart import ChartLayer, log_chart


def paths(picture: str, class_: str) -> list[list[tuple[float, float]]]:
    """The corners of the paths of a class."""
    found = [e for e in ElementTree.fromstring(picture) if e.tag == "path" and e.attrib["class"] == class_]
    pairs = [re.findall(r"([\d.]+) ([\d.]+)", e.attrib["d"]) for e in found]
    return [[(float(x), float(y)) for x, y in path] for path in pairs]


def test_a_power_law_is_a_straight_line() -> None:
    points = [(10.0**k, 10.0 ** (-k / 2)) for k in range(5)]
    picture = log_chart("t", [ChartLayer("law", points)], x_label="x", y_label="y")
    ((first, _, middle, _, last),) = paths(picture, "line s0")
    slope = (last[1] - first[1]) / (last[0] - first[0])
    assert slope > 0  # falling: y coordinates grow downwards
    assert (middle[1] - first[1]) / (middle[0] - first[0]) == pytest.approx(slope, rel=0.01)


def test_a_band_encloses_its_curve_and_extends_the_axis() -> None:
    layer = ChartLayer("law", [(1.0, 2.0), (10.0, 2.0)], band=[(1.0, 1.0, 4.0), (10.0, 1.0, 4.0)])
    picture = log_chart("t", [layer], x_label="x", y_label="y")
    (((_, curve), _),), ((upper, _, _, lower),) = paths(picture, "line s0"), paths(picture, "dot s0")
    assert upper[1] < curve < lower[1] and curve == pytest.approx((upper[1] + lower[1]) / 2, abs=0.2)


def test_marks_have_tooltips_and_different_shapes() -> None:
    layers = [
        ChartLayer("a", [(1.0, 1.0)], marks=True, curve=False, tooltips=["<first>"]),
        ChartLayer("b", [(2.0, 2.0)], marks=True, curve=False),
    ]
    picture = log_chart("<title>", layers, x_label="x", y_label="y")
    assert "&lt;first&gt;" in picture and "&lt;title&gt;" in picture and "<first>" not in picture
    assert len(re.findall("<circle", picture)) == 2 and len(paths(picture, "dot s1")) == 2  # legend and mark


@pytest.mark.parametrize(("high", "least"), [(2.0, 3), (300.0, 3), (1e9, 4)])
def test_axes_have_ticks_over_any_range(high: float, least: int) -> None:
    picture = log_chart("t", [ChartLayer("a", [(1.0, 1.0), (high, high)])], x_label="x", y_label="y")
    assert len(re.findall('class="grid"', picture)) >= least


def test_one_point_has_a_place_and_none_is_refused() -> None:
    assert "<circle" in log_chart("t", [ChartLayer("a", [(5.0, 5.0)], marks=True)], x_label="x", y_label="y")
    with pytest.raises(ValueError, match="no points to draw"):
        log_chart("t", [ChartLayer("a", [])], x_label="x", y_label="y")
