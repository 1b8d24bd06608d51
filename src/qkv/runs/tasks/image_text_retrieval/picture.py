"""Drawings of retrieval for a report: an image beside the nearest texts, and the matrix of cosines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from ....look.pictures import draws
from ....look.pictures.bitmap import drawn
from ....look.svg import tag

_CELL = 34  # pixels of a cell's side


@draws("cosines")
def cosines(picture: Mapping[str, Any]) -> Markup:
    """Draw an `image`, a PNG in base64, beside `texts`, pairs [text, cosine], the nearest first."""
    rows = [
        tag("tr", tag("td", f"{cosine:.3f}", style="padding-right:10px"), tag("td", text))
        for text, cosine in picture["texts"]
    ]
    table = tag("table", tag("tbody", *rows), style="width:auto;margin:0")
    return tag(
        "div",
        drawn(picture["image"], "picture", "height:96px"),
        table,
        style="display:flex;gap:16px;align-items:center;flex-wrap:wrap",
    )


@draws("similarities")
def similarities(picture: Mapping[str, Any]) -> Markup:
    """Draw the `cosines` of `images` (rows, PNGs in base64) and `texts` (columns); the largest of a row is framed."""
    table = picture["cosines"]
    values = [value for row in table for value in row]
    low, span = min(values), max(max(values) - min(values), 1e-6)
    numbers = [tag("th", str(i), scope="col", style=_style()) for i in range(1, len(picture["texts"]) + 1)]
    rows = [tag("tr", tag("td", "", style=_style()), *numbers)]
    for data, row in zip(picture["images"], table, strict=True):
        image = tag("td", drawn(data, "picture", f"height:{_CELL}px;display:block"), style=_style())
        cells = (_cell(value, (value - low) / span, value == max(row)) for value in row)
        rows.append(tag("tr", image, *cells))
    listed = tag(
        "ol", *(tag("li", text) for text in picture["texts"]), style="margin:0;padding-left:24px;font-size:13px"
    )
    grid = tag("table", tag("tbody", *rows), style="width:auto;margin:0;border-collapse:collapse")
    scroll = tag("div", grid, style="overflow-x:auto;max-width:100%")
    return tag("div", scroll, listed, style="display:flex;gap:24px;align-items:center;flex-wrap:wrap")


def _cell(value: float, share: float, largest: bool) -> Markup:
    shade = f"background:color-mix(in srgb, var(--s0) {round(70 * share)}%, transparent)"
    frame = ";outline:2px solid currentColor;outline-offset:-2px" if largest else ""
    return tag("td", f"{value:.2f}", style=f"{_style()};{shade}{frame}")


def _style() -> str:
    return f"width:{_CELL}px;height:{_CELL}px;padding:0 2px;text-align:center;font-size:11px;border:0"
