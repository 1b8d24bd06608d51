"""Pictures of positions: those that have something to show, with the values of their modules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from qkv.cli import main
from qkv.core.layout import Layout
from qkv.look.position_pictures import picture
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
    ],
    ids=repr,
)
def test_what_is_drawn(scheme: Position, titles: list[str]):
    drawn = picture(scheme)
    assert drawn is not None
    assert re.findall(r'class="chart-title">([^<]+)<', drawn) == titles


@pytest.mark.parametrize("scheme", [Learned(), NoPosition()], ids=repr)
def test_nothing_is_drawn_of_what_is_learned_or_nothing(scheme: Position):
    assert picture(scheme) is None


def test_alibi_falls_by_its_slopes():
    drawn = picture(ALiBi())
    assert drawn is not None and "head 0 -0.25" in drawn.replace("−", "-")


def test_the_command_writes_a_picture_of_each_scheme(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["list", "positions", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert {"sinusoidal.svg", "rotary.svg", "alibi.svg", "t5.svg"} <= {path.name for path in tmp_path.iterdir()}
    assert "not drawn, because they are learned or need a grid: " in said and "learned" in said
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
