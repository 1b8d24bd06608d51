"""Still pictures of attention: cells by weight, small maps, and the same rectangles in SVG and PNG."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET

import torch
from PIL import Image

from qkv.look.view.attention import LayerAttention
from qkv.look.view.picture import Drawing, _spread, cells, mixed

SHEET = "#f1efea"


def drawn(weights: list[list[float]], computed: list[list[bool]] | None = None) -> list[tuple[float, ...]]:
    drawing = Drawing(100, 100, "x")
    keep = None if computed is None else torch.tensor(computed)
    cells(drawing, torch.tensor(weights), keep, 10, 20, 12, 11)
    return drawing.rectangles  # type: ignore[return-value]


def test_a_cell_is_as_dark_as_its_share_of_the_largest_weight() -> None:
    sheet, *squares = drawn([[0.4, 0.2], [0.0, 0.001]])
    assert sheet == (10, 20, 23, 23, SHEET)
    assert squares == [(10, 20, 11, 11, "#3b2fb5"), (22, 20, 11, 11, "#968fd0")]  # 0 and 1/400 of it stay empty


def test_pairs_that_are_not_computed_are_gray_and_nan_is_empty() -> None:
    _, *squares = drawn([[float("nan"), 0.7], [float("inf"), 0.7]], [[True, False], [True, True]])
    assert [(x, y) for x, y, *_ in squares] == [(22, 20), (22, 32)]
    assert [color for *_, color in squares] == ["#dfdcd5", "#3b2fb5"]


def test_colors_aremixed_with_the_sheets() -> None:
    assert mixed(0.0, (59, 47, 181)) == SHEET and mixed(1.0, (59, 47, 181)) == "#3b2fb5"


def test_twelve_of_many_layers_are_spread_from_the_first_to_the_last() -> None:
    layers = [LayerAttention("x", i, (0,), torch.ones(1, 1, 1), None) for i in range(34)]
    assert [layer.index for layer in _spread(layers)] == list(range(0, 34, 3))
    assert _spread(layers[:12]) == layers[:12]


def test_svg_and_png_have_the_same_rectangles_and_texts() -> None:
    drawing = Drawing(40, 30, "a < b")
    drawing.rectangle(4, 6, 10, 5, "#ff0000")
    drawing.text(20, 20, "x & y", "middle")
    drawing.text(30, 28, "up", upright=True)
    root = ET.fromstring(drawing.svg())
    name = "{http://www.w3.org/2000/svg}"
    assert root.attrib["viewBox"] == "0 0 40 30" and root.findtext(f"{name}title") == "a < b"
    page, red = root.iter(f"{name}rect")
    assert page.attrib["width"] == "40" and red.attrib == {
        "x": "4",
        "y": "6",
        "width": "10",
        "height": "5",
        "fill": "#ff0000",
    }
    flat, upright = root.iter(f"{name}text")
    assert (flat.text, flat.get("text-anchor"), flat.get("transform")) == ("x & y", "middle", None)
    assert upright.get("transform") == "rotate(-90 30 28)"
    image = Image.open(io.BytesIO(drawing.png(zoom=3)))
    assert image.size == (120, 90)
    pixels = [(x, y) for x in range(120) for y in range(90) if image.getpixel((x, y)) == (255, 0, 0)]
    assert len(pixels) == 30 * 15 and min(pixels) == (12, 18) and max(pixels) == (41, 32)


def test_upright_texts_run_upwards_in_png() -> None:
    drawing = Drawing(30, 90, "x")
    drawing.text(10, 80, "upright", upright=True)
    image = Image.open(io.BytesIO(drawing.png(zoom=1))).convert("L")
    box = Image.eval(image, lambda v: 255 * (v < 128)).getbbox()
    assert box is not None and box[3] - box[1] > 2 * (box[2] - box[0]) and 70 <= box[3] <= 81
