"""Pictures of positions: those that have something to show, with the values of their modules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from qkv.cli import main
from qkv.core.layout import Layout
from qkv.look.analysis.position_criteria import by_distance, rises
from qkv.look.position_pictures import picture
from qkv.nn.layers.patches import GridPosition
from qkv.nn.positions.absolute import Learned, NoPosition, Sinusoidal
from qkv.nn.positions.base import Position, PositionModule, Widths
from qkv.nn.positions.bias import ALiBi, T5Buckets
from qkv.nn.positions.rotary import Rotary


@pytest.mark.parametrize(
    ("scheme", "titles"),
    [
        (Sinusoidal(), ["Values", "Dot products"]),
        (Rotary(), ["Dot products of ones"]),
        (ALiBi(), ["Bias of the scores"]),
        (T5Buckets(), ["Bucket"]),
        (Learned(), ["Values before training", "Dot products before training"]),
        (GridPosition(table="sinusoidal"), ["Values", "Dot products"]),
    ],
    ids=repr,
)
def test_what_is_drawn(scheme: Position, titles: list[str]):
    drawn = picture(scheme)
    assert drawn is not None
    assert re.findall(r'class="chart-title">([^<]+)<', drawn) == titles


def test_nothing_is_drawn_of_no_positions():
    assert picture(NoPosition()) is None


def test_dots_mark_where_a_dot_product_rises():
    drawn = picture(Sinusoidal())
    assert drawn is not None
    higher = [i for first, last in rises(by_distance(Sinusoidal())) for i in range(first, last)]
    assert drawn.count('class="dot s1"') == len(higher) + 1 == 23  # with the legend's


def test_alibi_falls_by_its_slopes():
    drawn = picture(ALiBi())
    assert drawn is not None and "head 0 -0.25" in drawn.replace("−", "-")


def test_the_command_writes_a_picture_of_each_scheme(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["list", "positions", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert {"sinusoidal.svg", "rotary.svg", "alibi.svg", "t5.svg"} <= {path.name for path in tmp_path.iterdir()}
    assert {"learned.svg", "grid.svg"} <= {path.name for path in tmp_path.iterdir()}
    assert "; nothing to draw without settings or positions: none" in said.replace("\n", "")
    assert main(["list", "norms", "--out", str(tmp_path)]) == 2
    assert "--out is for the pictures of patterns and positions, and norms have none" in capsys.readouterr().err


def test_a_narrow_table_shows_the_coordinates_that_it_has():
    class Narrow(PositionModule):
        def embed(self, layout: Layout) -> torch.Tensor:
            return torch.zeros(layout.shape[1], 10)

    class Own(Position, kind="narrow-for-this-test"):
        def module(self, widths: Widths) -> PositionModule:
            return Narrow()

    drawn = picture(Own())
    assert drawn is not None and "coordinate 8" in drawn and "coordinate 16" not in drawn
