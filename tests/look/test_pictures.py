"""Pictures of samples have a size on the page that its style sheet leaves alone, and stand side by side."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import qkv.look
from qkv.look.pictures import draw

ONE = "iVBORw0KGgo="
FOLDER = Path(qkv.look.__file__).parent
KINDS = {
    "scores": {"frames": [ONE], "scores": [["cat", 0.9], ["dog", 0.1]]},
    "scores of a video": {"frames": [ONE] * 8, "scores": [["up", 1.0]]},
    "mask": {"image": ONE, "truth": ONE, "made": ONE, "classes": [["cell", "#fff"]]},
    "patches": {"seen": ONE, "made": ONE, "truth": ONE},
}


@pytest.mark.parametrize("name", KINDS)
def test_small_pictures_are_drawn_large(name: str) -> None:
    """The sheet's `height: auto` would take an attribute's place, and 8 × 8 pixels would be 8 × 8 of the page."""
    assert (
        ".picture img, .samples .picture svg { max-width: 100%; height: auto;"
        in (FOLDER / "page/style.css").read_text()
    )
    drawn = str(draw({"kind": name.partition(" ")[0], **KINDS[name]}))
    styles = re.findall(r'<img[^>]*style="([^"]*)"', drawn)
    assert len(styles) == drawn.count("<img") == sum(value.count(ONE) for value in map(str, KINDS[name].values()))
    assert all(re.match(r"height:\d+px|width:100%|flex:1 1 ", style) for style in styles)


@pytest.mark.parametrize("kind", ["mask", "patches"])
def test_three_pictures_share_a_line(kind: str) -> None:
    drawn = str(draw({"kind": kind, **KINDS[kind]}))
    assert drawn.count("flex:1 1 0;min-width:0") == 3 and "flex-wrap" not in drawn
