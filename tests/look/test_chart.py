"""Charts: round ticks, nothing that isn't finite, tooltips with the values."""

from __future__ import annotations

import itertools
import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.look.chart import Series, line_chart, nice_ticks, thin


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_span_the_values_evenly_and_are_few(low: float, span: float):
    high = low + span
    ticks = nice_ticks(low, high)
    steps = [b - a for a, b in itertools.pairwise(ticks)]
    assert ticks[0] <= low + 1e-6 * span + 1e-9 and ticks[-1] >= high - 1e-6 * span - 1e-9
    assert 2 <= len(ticks) <= 9
    assert max(steps) == pytest.approx(min(steps), rel=1e-3)


def test_ticks_of_one_value_surround_it():
    ticks = nice_ticks(3.0, 3.0)
    assert ticks[0] < 3 < ticks[-1]
    assert nice_ticks(0.0, 0.0)[0] < 0 < nice_ticks(0.0, 0.0)[-1]


def test_thinning_keeps_ends_and_means():
    points = [(float(i), float(i % 2)) for i in range(10_001)]
    kept = thin(points)
    assert kept[0] == points[0] and kept[-1] == points[-1]
    assert len(kept) <= 302
    assert all(abs(y - 0.5) < 0.1 for _, y in kept[1:-2])  # the last group may be small
    assert thin(points[:5]) == points[:5]


def test_a_chart_is_well_formed_and_says_its_values():
    made = line_chart("Loss", [Series("train", [(1, 4.0), (2, 2.0)]), Series("<validation>", [(2, 2.5)], dots=True)])
    read = ElementTree.fromstring(made)
    tips = [t.text for t in read.iter("title")]
    assert "step 2\ntrain 2\n<validation> 2.5" in tips
    assert read.attrib["aria-label"] == "Loss: train from 4 to 2; <validation> from 2.5 to 2.5"
    assert len(list(read.iter("circle"))) == 2  # and its key


def test_values_that_are_not_finite_are_left_out():
    made = line_chart("Loss", [Series("train", [(1, math.nan), (2, 1.0), (3, math.inf), (4, 3.0)])])
    assert "nan" not in made and "inf" not in made
    assert line_chart("Loss", [Series("train", [(1, math.nan)])]) == ""
    assert line_chart("Loss", []) == ""


def test_a_wide_range_is_drawn_on_a_logarithmic_axis_unless_zero_belongs_to_it():
    series = [Series("x", [(1, 0.01), (2, 10.0)])]
    assert ">0.1<" in line_chart("t", series)
    assert ">0.1<" not in line_chart("t", series, zero=True)
    assert ">0<" in line_chart("t", series, zero=True)


def test_everything_stays_inside_the_drawing():
    made = line_chart("t", [Series("x", [(1, -3.0), (500, 17.0)])], width=300, height=180)
    numbers = [float(n) for part in made.split(' d="M')[1:] for n in part.split('"')[0].replace("L", " ").split()]
    assert all(0 <= x <= 300 for x in numbers[::2]) and all(0 <= y <= 180 for y in numbers[1::2])


def test_one_place_has_its_tick():
    drawn = line_chart("Quality", [Series("accuracy", [(221.0, 36.0)], dots=True)], zero=True)
    assert ">221</text>" in drawn


def test_a_long_legend_takes_several_rows() -> None:
    names = [f"runs/experiment-with-a-long-name-{i}" for i in range(5)]
    chart = str(line_chart("Loss", [Series(name, [(0, 1), (1, 2)]) for name in names]))
    places = [float(y) for y in re.findall(r'y="([\d.]+)" class="tick">runs/', chart)]
    assert len(places) == 5 and len(set(places)) == 5
    height = float(re.findall(r'viewBox="0 0 440 (\d+)"', chart)[0])
    assert height > 230 + 3 * (places[1] - places[0])


def test_ticks_have_as_many_digits_as_tell_them_apart() -> None:
    chart = str(line_chart("Loss", [Series("train", [(0, 0.6931), (1, 0.6952)])]))
    ticks = re.findall(r'text-anchor="end">(0\.[\d]+)<|>(0\.[\d]+)</text>', chart)
    labels = [a or b for a, b in ticks]
    assert len(labels) == len(set(labels)) >= 4


def test_a_constant_0_lies_on_the_axis():
    labels = re.findall(
        r'class="tick"[^>]*text-anchor="end">([^<]+)<', str(line_chart("t", [Series("a", [(0, 0), (1, 0)])]))
    )
    assert labels[0] == "0" and labels[-2:] == ["1", "step"]


def test_steps_have_no_fractions():
    drawn = str(line_chart("t", [Series("a", [(10, 1.0), (11, 2.0)])]))
    assert re.findall(r'text-anchor="middle">([^<]+)<', drawn) == ["10", "11"]


def test_a_legend_has_dots_for_series_without_a_line() -> None:
    line, point = Series("loss", [(0, 1), (1, 2)]), Series("elbow", [(1, 2)], dots=5)
    apart = Series("rises", [(0, 1), (1, 2)], dots=3, joined=False)
    drawn = line_chart("loss", [line, point, apart])
    assert [drawn.count(f'class="line s{i}"') for i in range(3)] == [2, 1, 0]  # a series and its key
