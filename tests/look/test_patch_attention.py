"""Attention drawn on a picture: patches without attention are veiled."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

import qkv.look
from qkv.data.media.png import png
from qkv.look.attention_picture import load, save
from qkv.look.patch_attention import PatchPicture

LAYERS = [{"name": "a", "weights": [[0.5, 0.25, 0.25, 0.0]]}, {"name": "b", "weights": [[0.0, 0.0, 0.0, 1.0]]}]
PICTURE = PatchPicture(
    "<b> cat",
    png(np.zeros((3, 8, 16), np.uint8)),
    [8, 16],
    [2, 2],
    ", class token",
    LAYERS,
    words=[["<i>", [0.25, 0.25, 0.25, 0.25]]],
    facts=[["model", "cat & dog"]],
)


def veil(drawing: ElementTree.Element) -> dict[tuple[int, int], float]:
    """(row, column) → opacity."""
    return {
        (int(row), int(column)): float(path.attrib["fill-opacity"])
        for path in drawing.iter("path")
        for column, row in re.findall(r"M(\d+) (\d+)h1v1h-1z", path.attrib["d"])
    }


def test_the_veil_is_thinner_where_attention_goes() -> None:
    drawn = PICTURE.draw("p")
    found = re.findall(r'<svg(?: [\w-]+="[^"]*")* aria-label="layer 1, head 1">.*?</svg>', drawn, re.DOTALL)
    (small,) = map(ElementTree.fromstring, found)
    assert veil(small) == {(0, 1): 0.44, (1, 0): 0.44, (1, 1): 0.88}  # none over the patch with the largest weight
    assert (small.attrib["width"], small.attrib["height"]) == ("96", "48")


def test_everything_is_labelled_and_escaped() -> None:
    drawn = PICTURE.draw("p")
    assert drawn.count("data:image/png;base64,") == 1, "all drawings share the picture"
    assert "<b>" not in drawn and "<i>" not in drawn and "cat &amp; dog" in drawn
    assert "mean of its heads, class token" in drawn and drawn.count("<details") == 2
    assert 'aria-label="layer 2, head 1"' in drawn and 'aria-label="layer 2, head 1, enlarged"' in drawn


def test_saved_pictures_come_back(tmp_path: Path) -> None:
    save(tmp_path / "attention.json", [PICTURE])
    assert load(tmp_path / "attention.json") == [PICTURE]


def test_spectrograms_have_their_first_row_at_the_bottom() -> None:
    upward = replace(PICTURE, upward=True).draw("p")
    assert upward.count('class="veiled upward"') == PICTURE.draw("p").count('class="veiled"') > 0
    assert ".upward { transform: scaleY(-1); }" in (Path(qkv.look.__file__).parent / "page/style.css").read_text()
