"""Attention as pictures: the ink follows the weights, hostile tokens stay text."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from qkv.look.heatmap import enlarged_map, heat_map, label_definitions, small_map

WEIGHTS = [[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]]


def _cells(made: str) -> dict[str, float]:
    """Tooltip → ink of the large picture's cells; cells of its scale have a number for a tooltip."""
    read = ElementTree.fromstring(made)
    groups = [g for g in read.iter("g") if "→" in (g.find("title").text or "")]
    inks = {g.find("title").text: [r.attrib.get("fill-opacity") for r in g.findall("rect")][1:] for g in groups}
    return {tip: float(ink[0]) if ink else 0.0 for tip, ink in inks.items()}


def test_each_cell_has_its_weight_in_ink_and_words():
    cells = _cells(heat_map(WEIGHTS, ["le", "chat"], ["the", " cat", "sat"], "t"))
    assert len(cells) == 6
    assert cells["le → the  0.500"] == 0.5
    assert cells["chat → sat  1.000"] == 1.0
    assert cells["chat → ␣cat  0.000"] == 0.0


def test_the_largest_weight_has_full_ink():
    cells = _cells(heat_map([[0.1, 0.2]], ["a"], ["b", "c"], "t"))
    assert cells["a → c  0.200"] == 1.0 and cells["a → b  0.100"] == 0.5


def test_hostile_tokens_stay_text():
    hostile = '"><script>x'
    made = heat_map([[1.0]], [hostile], ["</svg><b>"], hostile)
    assert "<script" not in made and "<b>" not in made
    read = ElementTree.fromstring(made)
    assert {t.text for t in read.iter("text")} >= {hostile, "</svg><b>"}


def test_rows_and_columns_have_to_fit():
    with pytest.raises(ValueError, match="2 × 3 don't fit 1 rows and 3 columns"):
        heat_map(WEIGHTS, ["a"], ["b", "c", "d"], "t")
    with pytest.raises(ValueError, match="no weights"):
        heat_map([], [], [], "t")
    with pytest.raises(ValueError, match="no weights"):
        small_map([], "t")


def test_a_picture_in_words_says_where_each_row_looks_most():
    read = ElementTree.fromstring(heat_map(WEIGHTS, ["le", "chat"], ["the", "cat", "sat"], "Both"))
    assert read.attrib["aria-label"] == "Both; most of each row: le to the, chat to sat"


def test_a_small_picture_has_every_weight_in_its_shade():
    drawing = ElementTree.fromstring(small_map(WEIGHTS, "head 1"))
    shades = [[0.0] * 3 for _ in WEIGHTS]
    for path in drawing.iter("path"):
        for column, row in re.findall(r"M(\d+) (\d+)h1v1h-1z", path.attrib["d"]):
            shades[int(row)][int(column)] += float(path.attrib["fill-opacity"])
    assert shades == WEIGHTS
    assert len(list(drawing.iter("path"))) == 3, "cells of one shade are one path"
    assert drawing.attrib["viewBox"] == "0 0 3 2" and drawing.attrib["aria-label"] == "head 1"
    assert (drawing.attrib["width"], drawing.attrib["height"]) == ("96", "64"), "cells are squares"


def test_the_shades_of_a_small_picture_are_shares_of_its_largest_weight():
    paths = ElementTree.fromstring(small_map([[0.01, 0.02]], "head 1")).iter("path")
    assert {path.attrib["d"][:4]: path.attrib["fill-opacity"] for path in paths} == {"M0 0": "0.5", "M1 0": "1"}


def test_an_enlarged_picture_reuses_cells_and_labels_by_their_ids():
    small = small_map(WEIGHTS, "head 1", cells="cells-1")
    labels = label_definitions(["le", "<b>"], ["the", "cat", "sat"], "labels")
    large = ElementTree.fromstring(enlarged_map(["le", "<b>"], ["the", "cat", "sat"], "head 1", "labels", "cells-1"))
    assert [use.attrib["href"] for use in large.iter("use")] == ["#labels", "#cells-1"]
    (cells,) = ElementTree.fromstring(small).iter("g")
    (texts,) = ElementTree.fromstring(labels).iter("g")
    assert (cells.attrib["id"], texts.attrib["id"]) == ("cells-1", "labels")
    assert {text.text for text in texts.iter("text")} == {"le", "<b>", "the", "cat", "sat"}


def test_the_first_row_of_causal_attention_does_not_set_the_scale():
    cells = _cells(heat_map([[1.0, 0.0], [0.2, 0.4]], ["a", "b"], ["a", "b"], "t"))
    assert (cells["a → a  1.000"], cells["b → a  0.200"], cells["b → b  0.400"]) == (1.0, 0.5, 1.0)
