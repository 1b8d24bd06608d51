"""Pictures and pages of numbers that are not finite, of one, and of none."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import run_untrained
import torch

from qkv.look.attention_maps import AttentionMap
from qkv.look.attention_picture import Picture
from qkv.look.chart import Series, line_chart
from qkv.look.heatmap import heat_map, small_map
from qkv.look.patch_attention import PatchPicture
from qkv.look.scatter import Point, principal, scatter

BAD = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("bad", BAD)
def test_maps_leave_empty_what_is_not_finite_and_say_so(bad: float) -> None:
    for weights in ([[bad, 0.5], [0.25, 0.75]], [[bad, bad], [bad, bad]], [[bad]]):
        names = ["a", "b"][: len(weights)]
        assert "nan" not in small_map(weights, "label").replace("NaN", "")
        assert "<svg" in heat_map(weights, names, names, "title")
        tensor = torch.tensor(weights)[None, None]
        page = Picture.of("title", names, names, [AttentionMap("a", tensor)]).draw()
        assert "not finite numbers are drawn empty: the training has diverged" in page
    finite = Picture.of("title", ["a"], ["a"], [AttentionMap("a", torch.ones(1, 1, 1, 1))]).draw()
    assert "diverged" not in finite
    patches = PatchPicture("title", "", [2, 2], [2, 2], "", [{"name": "a", "weights": [[bad, 0.5, 0.2, 0.1]]}])
    assert "drawn empty" in patches.draw("x")


@pytest.mark.parametrize("bad", [*BAD, 1e308, -1e308])
def test_charts_and_scatters_draw_the_rest(bad: float) -> None:
    line = Series("a", [(0, bad), (1, 2.0), (2, -bad)], dots=True)
    assert "<svg" in line_chart("title", [line]) and line_chart("title", [Series("a", [(0, bad)])]) == ""
    assert line_chart("title", []) == "" and "<svg" in line_chart("title", [Series("a", [(0, 1.0)])])
    if abs(bad) == math.inf or math.isnan(bad):
        drawn = scatter("title", [Point(bad, 0, 0, "a"), Point(1, 1, 0, "b")], ["x"])
        assert "1 of 2 points are not finite numbers" in drawn
        assert "2 of 2 points" in scatter("title", [Point(bad, 0, 0, "a"), Point(0, bad, 0, "b")], ["x"])
        assert principal(torch.tensor([[bad, 1.0], [0.0, 1.0]])).isnan().all()


@pytest.mark.parametrize("bad", BAD)
def test_a_model_that_diverged_can_be_looked_at(bad: float, tmp_path: Path) -> None:
    run = run_untrained.of("gpt2", run_untrained.words(), "continue", n_layers=1, max_positions=64)
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.fill_(bad)
    for word in (None, "b"):
        figure = run.look("abc", word=word)
        assert any("the training has diverged" in note for note in figure.views[0].notes)
        for suffix in ("html", "svg", "png", "json"):
            figure.save(tmp_path / f"x.{suffix}")
        assert "nan" not in (tmp_path / "x.svg").read_text().lower().split("</title>")[1]
    assert json.loads((tmp_path / "x.json").read_text())
