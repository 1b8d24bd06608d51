"""A picture, and what a model took it for: its likeliest classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from ..svg import tag
from . import draws

_SIDE, _BAR, _LINE = 112, 130, 22  # of the picture, and of a class's bar, in pixels of the page


@draws("scores")
def scores(picture: Mapping[str, Any]) -> Markup:
    """`image` is a PNG in base64, `scores` [name, probability] of classes, the likeliest first."""
    source = f"data:image/png;base64,{picture['image']}"
    image = tag("img", src=source, alt="picture", height=_SIDE, style="image-rendering:pixelated")
    bars = [_bar(i, str(name), float(p)) for i, (name, p) in enumerate(picture["scores"])]
    chart = tag("svg", *bars, width=2.2 * _BAR, height=_LINE * len(bars), font_size=12, fill="currentColor")
    return tag("div", image, chart, style="display:flex;gap:16px;align-items:center")


def _bar(i: int, name: str, p: float) -> Markup:
    y = i * _LINE
    return tag(
        "g",
        tag("rect", x=0, y=y + 4, width=_BAR * p, height=_LINE - 8, rx=2, fill="var(--s0)", opacity=0.75),
        tag("text", f"{name} {100 * p:.0f} %", x=_BAR * p + 6, y=y + 15),
    )
