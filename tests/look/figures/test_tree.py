"""Trees: each path has its last word, its note and a branch; those that were not kept are faint."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qkv.look.figures.tree import chart, tree

PATHS = {("the",): ("-0.6", True), ("a",): ("-0.8", True), ("a", "cat"): ("-0.9", True), ("a", "mat"): ("-3.1", False)}


def test_words_are_columns_and_a_parent_is_in_the_middle_of_its_children(tmp_path: Path):
    tree(tmp_path / "a.svg", "Beams", PATHS)
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    words = re.findall(r'x="([\d.]+)" y="([\d.]+)" class="ink[^"]*">([^<]+)', drawn)
    places = {word: (float(x), float(y)) for x, y, word in words}
    assert places["the"][0] == places["a"][0] < places["cat"][0] == places["mat"][0]
    assert places["a"][1] == (places["cat"][1] + places["mat"][1]) / 2 and places["the"][1] < places["cat"][1]
    assert re.findall(r'class="ink faint">([^<]+)', drawn) == ["mat"] and drawn.count("<path") == 4


def test_a_path_without_its_beginning_is_refused():
    with pytest.raises(ValueError, match="missing"):
        chart("Beams", {("a", "cat"): ("", True)})
    with pytest.raises(ValueError, match="no paths"):
        chart("Beams", {})
