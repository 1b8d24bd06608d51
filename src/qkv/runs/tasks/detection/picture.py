"""Drawing of detected objects: true boxes dashed, predicted ones with their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ....look.pictures import draws
from ....look.svg import tag

_WIDTH = 380
_KEY = 18  # height of the line below the picture


@draws("boxes")
def boxes(picture: Mapping[str, Any]) -> Markup:
    """Draw boxes over an `image`, a PNG in base64 of the `size` (height, width). `truth` and `made` are true and predicted
    boxes with `name`, `color`, perhaps a `score`, and edges (left, top, right, bottom) as shares of the picture."""
    height, width = picture["size"]
    high = _WIDTH * height / width
    image = tag(
        "image",
        href=f"data:image/png;base64,{picture['image']}",
        width=_WIDTH,
        height=high,
        preserveAspectRatio="none",
        style="image-rendering:pixelated",
    )
    drawn = [*_boxes(picture["truth"], high, dashed=True), *_boxes(picture["made"], high, dashed=False)]
    key = tag("text", "solid: model; dashed: truth", x=0, y=high + 14, font_size=11, fill="currentColor")
    place = {"viewBox": f"0 0 {_WIDTH} {high + _KEY:.1f}", "width": _WIDTH, "height": high + _KEY}
    return tag(
        "svg", image, *drawn, key, **place, role="img", xmlns="http://www.w3.org/2000/svg"
    )  # also a separate file


def _boxes(objects: Sequence[Mapping[str, Any]], high: float, dashed: bool) -> list[Markup]:
    parts = []
    for one in objects:
        left, top, right, bottom = (
            share * side for share, side in zip(one["box"], (_WIDTH, high, _WIDTH, high), strict=True)
        )
        label = one["name"] + (f" {one['score']:.2f}" if "score" in one else "")
        place = {"x": left, "y": top, "width": max(right - left, 0.0), "height": max(bottom - top, 0.0)}
        line = {"fill": "none", "stroke": "#222" if dashed else one["color"], "stroke_width": 1.2 if dashed else 2}
        parts.append(tag("rect", tag("title", label), **place, **line, stroke_dasharray="5 4" if dashed else None))
        if not dashed:
            style = "paint-order:stroke;stroke:#fff;stroke-width:3px"
            parts.append(tag("text", label, x=left + 2, y=max(top - 3, 10.0), font_size=11, fill="#222", style=style))
    return parts
