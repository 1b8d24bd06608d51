"""Pictures of samples: every image with its description, classes and scores, at a size that the style sheet leaves alone."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import qkv.look
from qkv.look.pictures import draw
from qkv.runs.tasks import import_all

import_all()  # registers the kinds of pictures
ONE = "iVBORw0KGgo="


class Seen(HTMLParser):
    """What a reader meets: images by their descriptions, and words."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.images: list[str | None] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            assert dict(attributes)["src"] == f"data:image/png;base64,{ONE}"
            self.images.append(dict(attributes)["alt"])

    def handle_data(self, data: str) -> None:
        self.words.append(data)


KINDS: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "scores": ({"frames": [ONE], "scores": [["cat", 0.9], ["dog", 0.1]]}, ["picture"], ["cat: 90 %", "dog: 10 %"]),
    "scores of a video": (
        {"frames": [ONE] * 8, "scores": [["up", 1.0]]},
        [f"frame {i}" for i in range(1, 9)],
        ["up: 100 %"],
    ),
    "mask": (
        {"image": ONE, "truth": ONE, "made": ONE, "classes": [["cell", "#fff"]]},
        ["picture", "truth", "prediction"],
        ["picture", "truth", "prediction", "cell"],
    ),
    "patches": (
        {"seen": ONE, "made": ONE, "truth": ONE},
        ["seen", "reconstructed", "truth"],
        ["seen", "reconstructed", "truth"],
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_image_is_shown_and_named(name: str) -> None:
    given, images, words = KINDS[name]
    seen = Seen(str(draw({"kind": name.partition(" ")[0], **given})))
    assert seen.images == images and seen.words == words


@pytest.mark.parametrize("name", KINDS)
def test_small_pictures_are_drawn_large(name: str) -> None:
    """The style sheet's `height: auto` overrides an attribute, and 8 × 8 pixels would be 8 × 8 of the page."""
    sheet = (Path(qkv.look.__file__).parent / "page/style.css").read_text()
    assert ".picture img, .samples .picture svg { max-width: 100%; height: auto;" in sheet
    picture, images, _ = KINDS[name]
    styles = re.findall(r'<img[^>]*style="([^"]*)"', str(draw({"kind": name.partition(" ")[0], **picture})))
    assert len(styles) == len(images)
    assert all(re.match(r"height:\d+px|width:100%|flex:1 1 ", style) for style in styles)


@pytest.mark.parametrize("kind", ["mask", "patches"])
def test_three_pictures_share_a_line(kind: str) -> None:
    drawn = str(draw({"kind": kind, **KINDS[kind][0]}))
    assert drawn.count("flex:1 1 0;min-width:0") == 3 and "flex-wrap" not in drawn
