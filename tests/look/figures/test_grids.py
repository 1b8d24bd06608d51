"""Grids: a cell for each value that is not 0, as opaque as it is large."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from qkv.look.figures.grids import ValueGrid, chart, grids
from qkv.look.standalone_svg import WIDTH


def test_cells_are_as_opaque_as_their_share_of_the_largest(tmp_path: Path):
    grids(tmp_path / "a.svg", ValueGrid("weights", torch.tensor([[0.4, 0.0], [0.1, 0.2]])))
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert re.findall(r'fill-opacity="([\d.]+)"', drawn) == ["1", "0.25", "0.5"]


def test_a_given_top_compares_grids():
    assert 'fill-opacity="0.5"' in chart([ValueGrid("a", [[1.0]], top=2.0)])


def test_labels_stand_beside_rows_and_above_columns():
    drawn = chart([ValueGrid("cross", [[1.0, 0.0]], ["sie"], ["she", "saw"])])
    assert re.findall(r'class="tick"[^>]*>([^<]+)<', drawn) == ["sie", "she", "saw"]


def test_grids_fill_rows_without_leaving_the_picture():
    drawn = chart([ValueGrid(str(i), torch.ones(30, 30)) for i in range(5)], across=3)
    places = [tuple(map(float, place)) for place in re.findall(r"translate\(([\d.]+) ([\d.]+)\)", drawn)]
    assert len({y for _, y in places}) == 2 and [x for x, _ in places[:2]] == [x for x, _ in places[3:]]
    sheets = re.findall(r'x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="[\d.]+" class="sheet"', drawn)
    ends = [float(x) + float(width) for x, width in sheets]
    assert len(ends) == 5 and max(ends) + max(x for x, _ in places) <= WIDTH + 0.1


def test_nothing_to_draw_is_refused():
    with pytest.raises(ValueError, match="no grids"):
        chart([])
