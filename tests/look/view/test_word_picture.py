"""A still picture of one word: what it attends to in each head, each row by its own largest weight."""

from __future__ import annotations

from pathlib import Path

import pytest
import run_untrained

from qkv.cli import main
from qkv.look.view.picture import _mixed
from qkv.runs.inference.run import Run


@pytest.fixture(scope="module")
def run() -> Run:
    return run_untrained.of("gpt2", run_untrained.words(), "continue", n_layers=2, max_positions=64)


@pytest.fixture(scope="module")
def translator() -> Run:
    return run_untrained.of("transformer", run_untrained.words(), "translate", n_layers=1)


def test_a_picture_of_a_word_has_a_row_for_each_head(run: Run) -> None:
    figure = run.look("abc", word="b")
    group = figure.views[0].group()
    axis = figure.views[0].axes[group.query]
    (place,) = figure.views[0].focus[group.query]
    drawing = figure.drawing(layer=1)
    texts = [text for _, _, text, _, _ in drawing.texts]
    heads = len(group.layer(1).heads)
    rows = [text for text in texts if "head" in text and text.startswith(axis.labels[place])]
    assert [row.split("   ")[1] for row in rows] == ["mean of heads", *(f"head {h}" for h in range(heads))]
    assert texts[0] == f"decoder, layer 1: what {axis.labels[place]} attends to"
    strongest = [color for *_, color in drawing.rectangles].count(_mixed(1.0, (59, 47, 181)))
    assert strongest >= heads + 1  # at least one in every row
    assert figure.drawing().svg() != run.look("abc").drawing().svg()


def test_a_kind_of_attention_is_drawn_where_it_is_asked_for(translator: Run) -> None:
    asked = {kind: translator.look("ab", target="cd", kind=kind) for kind in (None, "decoder", "cross")}
    assert [figure.drawing().title.split(",")[0] for figure in asked.values()] == ["encoder", "decoder", "cross"]
    assert asked["cross"].page_data()["kind"] == "cross"
    source = translator.look("ab", target="cd", kind="cross", word="a").drawing()
    assert source.title.startswith("cross, layer 0: what attends to ")
    with pytest.raises(ValueError, match="there is no attention 'crss'; this figure has encoder, decoder, cross"):
        translator.look("ab", target="cd", kind="crss")


def test_the_command_takes_a_kind_for_pictures_and_scores(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.svg"
    assert main(["look", str(trained), "a b c", "--target", "c b a", "--kind", "cross", "--out", str(out)]) == 0
    assert "<title>cross, layer 0" in out.read_text(encoding="utf-8")
    assert main(["look", str(trained), "a b c", "--target", "c b a", "--kind", "cross", "--json"]) == 2
