"""A still picture of one word: what it attends to in each head, each row by its own largest weight."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
import run_untrained

from qkv.cli import main
from qkv.look.view.picture import GROUND, mixed
from qkv.look.view.word_picture import COLORS
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
    drawn = [color for *_, color in drawing.rectangles]
    assert all(mixed(1.0, COLORS[h]) in drawn for h in range(heads)), "a swatch and the largest weight of each row"
    assert figure.drawing().svg() != run.look("abc").drawing().svg()


def test_each_head_has_lines_of_its_color_as_strong_as_their_weights(run: Run) -> None:
    """As figure 3 of Vaswani et al. (2017): the ends of lines are at the tokens, the color is mixed by weight / largest."""
    figure = run.look("abcd", word="c", layers=[1])
    group, axis = figure.views[0].group(), figure.views[0].axes["text"]
    (place,) = figure.views[0].focus["text"]
    weights = group.layer(1).weights[:, place]
    drawing = figure.drawing()
    expected = [
        (mixed(w / float(row.max()), COLORS[h], GROUND), round(0.6 + 1.8 * w / float(row.max()), 2))
        for h, row in enumerate(weights)
        for w in row.tolist()
        if w >= 0.05 * float(row.max())
    ]
    assert sorted((color, width) for _, color, width in drawing.lines) == sorted(expected)
    labels = {text: x for x, _, text, _, upright in drawing.texts if upright}
    ends = {round(points[-1][0]) for points, *_ in drawing.lines}
    assert all(any(abs(end - labels[axis.labels[key]]) < 9 for end in ends) for key in range(place + 1))
    assert {points[0][0] for points, *_ in drawing.lines} == {labels[axis.labels[place]] - 4}
    assert drawing.svg().count("<path") == len(drawing.lines) > 0
    one = run.look("abcd", word="c", layers=[1], heads=[0]).drawing()
    assert {color for _, color, _ in one.lines} <= {mixed(s / 1000, COLORS[0], GROUND) for s in range(1001)}


def test_a_word_picture_is_written_as_svg_png_and_pdf(run: Run, tmp_path: Path) -> None:
    figure = run.look("abcd", word="c")
    paths = [figure.save(tmp_path / f"x.{kind}") for kind in ("svg", "png", "pdf")]
    svg, png, pdf = (path.read_bytes() for path in paths)
    assert svg.startswith(b"<svg") and png.startswith(b"\x89PNG") and pdf.startswith(b"%PDF")
    width, height = figure.drawing().width, figure.drawing().height
    assert struct.unpack(">II", png[16:24]) == (2 * width, 2 * height)
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+) ?\]", pdf)
    assert box is not None and [float(side) for side in box.groups()] == [width, height], (
        "points of the page are pixels"
    )


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
