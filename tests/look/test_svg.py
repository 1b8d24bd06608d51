"""Every word that reaches a picture is escaped, and numbers read well."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from qkv.look.svg import join, number, readable, tag, text_width, visible


def test_a_tag_closes_itself_or_holds_its_children():
    assert tag("rect", x=1, y=2.50, stroke_width=3, class_="a") == '<rect x="1" y="2.5" stroke-width="3" class="a"/>'
    assert tag("g", tag("title", "t"), "text") == "<g><title>t</title>text</g>"
    assert tag("svg", viewBox="0 0 1 1") == '<svg viewBox="0 0 1 1"/>'
    assert tag("text", "x", role=None) == "<text>x</text>"


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=30))
def test_hostile_text_comes_back_as_text(hostile: str):
    made = tag("text", hostile, aria_label=hostile)
    read = ElementTree.fromstring(made)
    assert (read.text or "") == hostile
    assert read.attrib["aria-label"] == hostile
    assert len(read) == 0


def test_only_markup_is_taken_as_it_is():
    assert join("<b>", Markup("<b>")) == "&lt;b&gt;<b>"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (1, "1"),
        (0.5, "0.5"),
        (12.345, "12.3"),
        (999.9, "1k"),
        (1234, "1.23k"),
        (1_063_424, "1.06M"),
        (0.00042, "4.2e-4"),
        (1e-4, "1e-4"),
        (0.001, "0.001"),
        (-0.25, "-0.25"),
        (float("nan"), "nan"),
    ],
)
def test_values_for_readers(value: float, said: str):
    assert readable(value) == said


def test_coordinates_are_short():
    assert [number(x) for x in (0.0, -0.001, 1.0, 1.256, 100.0)] == ["0", "0", "1", "1.26", "100"]


def test_white_space_shows_and_long_tokens_are_cut():
    assert visible(" the\n") == "␣the↵"
    assert visible("") == "∅"
    assert visible("\x00") == "\\x00"
    assert visible("x" * 40) == "x" * 15 + "…"


def test_east_asian_characters_are_wider_and_accents_take_no_room():
    assert text_width("日本", 10) == 20
    assert text_width("e\u0301", 10) == text_width("e", 10)
