"""A picture or the frames of a video, and what a model took it for: its likeliest classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from ..svg import tag
from . import draws

_ALONE, _FRAME = 112, 56  # height of a picture, and of each frame of several, in pixels of the page
_BAR, _LINE = 130, 22  # of a class


@draws("scores")
def scores(picture: Mapping[str, Any]) -> Markup:
    """`frames` are PNGs in base64, one or several; `scores` [name, probability] of classes, the likeliest first."""
    frames = picture["frames"]
    height = _ALONE if len(frames) == 1 else _FRAME
    images = [_image(data, f"frame {i + 1}" if len(frames) > 1 else "picture", height) for i, data in enumerate(frames)]
    bars = [_bar(i, str(name), float(p)) for i, (name, p) in enumerate(picture["scores"])]
    chart = tag("svg", *bars, width=2.2 * _BAR, height=_LINE * len(bars), font_size=12, fill="currentColor")
    strip = tag("div", *images, style="display:flex;gap:3px;flex-wrap:wrap")
    return tag("div", strip, chart, style="display:flex;gap:16px;align-items:center;flex-wrap:wrap")


def _image(data: str, name: str, height: int) -> Markup:
    source = f"data:image/png;base64,{data}"
    return tag("img", src=source, alt=name, height=height, style="image-rendering:pixelated")


def _bar(i: int, name: str, p: float) -> Markup:
    y = i * _LINE
    return tag(
        "g",
        tag("rect", x=0, y=y + 4, width=_BAR * p, height=_LINE - 8, rx=2, fill="var(--s0)", opacity=0.75),
        tag("text", f"{name} {100 * p:.0f} %", x=_BAR * p + 6, y=y + 15),
    )
