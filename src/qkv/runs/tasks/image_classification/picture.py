"""Drawing of image and video classification for a report: a picture or frames, and the most probable classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from ....look.pictures import draws
from ....look.pictures.bitmap import drawn
from ....look.svg import tag

_ALONE = "height:112px"  # of a single picture
_FRAMES = "display:grid;gap:3px;grid-template-columns:repeat(4,minmax(0,96px));flex:1 1 100%"  # of several frames
_BAR, _LINE = 130, 22  # width and height of a class, in pixels


@draws("scores")
def scores(picture: Mapping[str, Any]) -> Markup:
    """Draw `frames`, PNGs in base64, beside the `scores`, pairs [class, probability], the most probable first."""
    frames = picture["frames"]
    alone = len(frames) == 1
    shown = ((data, "picture" if alone else f"frame {i}") for i, data in enumerate(frames, 1))
    images = [drawn(data, name, _ALONE if alone else "width:100%") for data, name in shown]
    bars = [_bar(i, str(name), float(p)) for i, (name, p) in enumerate(picture["scores"])]
    chart = tag("svg", *bars, width=2.2 * _BAR, height=_LINE * len(bars), font_size=12, fill="currentColor")
    strip = tag("div", *images, style=None if alone else _FRAMES)
    return tag("div", strip, chart, style="display:flex;gap:16px;align-items:center;flex-wrap:wrap")


def _bar(i: int, name: str, p: float) -> Markup:
    y = i * _LINE
    return tag(
        "g",
        tag("rect", x=0, y=y + 4, width=_BAR * p, height=_LINE - 8, rx=2, fill="var(--s0)", opacity=0.75),
        tag("text", f"{name}: {100 * p:.0f} %", x=_BAR * p + 6, y=y + 15),
    )
