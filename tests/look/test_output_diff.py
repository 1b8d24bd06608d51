"""Durations and marked differences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from qkv.look.output_diff import duration, marked


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0.4 s"), (9.94, "9.9 s"), (42.4, "42 s"), (59.6, "1 min"), (250, "4 min 10 s"), (7500, "2 h 5 min")],
)
def test_durations_are_in_readable_units(seconds: float, said: str):
    assert duration(seconds) == said


def test_words_that_the_truth_lacks_are_marked():
    assert marked("vor 4 Tage", "vor 3 Tagen") == "vor <mark>4</mark> <mark>Tage</mark>"
    assert marked("il y a", "il y a 3 jours") == "il y a"


def test_a_truth_without_spaces_is_compared_by_characters():
    assert marked("3月3日月曜日", "3月3日火曜日") == "3月3日<mark>月</mark>曜日"


def test_another_name_is_marked_as_a_whole():
    assert marked("deer", "dog") == "<mark>deer</mark>" and marked("dog", "dog") == "dog" and marked("", "dog") == ""


@given(st.text(max_size=20), st.text(max_size=20))
def test_nothing_is_lost_and_everything_escaped(output: str, target: str):
    made = marked(output, target)
    assert made.replace("<mark>", "").replace("</mark>", "") == escape(output)
