"""Heat maps of attention as SVG: keys across the top, queries down the side, weights as the opacity of cells."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import ceil, cos, isfinite, radians, sin
from typing import NamedTuple

from markupsafe import Markup

from .svg import join, number, tag, text_width, visible

Weights = Sequence[Sequence[float]]  # rows (queries) of columns (keys)

_FONT = 12.0
_SLANT = 50.0  # rotation of column labels, in degrees
_LEVELS = 20  # shades in a small picture
_SCALE = 165.0  # width of the color scale


def heat_map(weights: Weights, rows: Sequence[str], columns: Sequence[str], title: str) -> Markup:
    """Draw a heat map with token labels, a tooltip for every weight, and a color scale below.

    `weights[r][c]` in 0 … 1 is the weight of column token c for row token r. The largest weight is opaque.
    """
    _check(weights, rows, columns)
    frame = _Frame.of(rows, columns)
    cell, left, top, width, height = frame.cell, frame.left, frame.top, frame.width, frame.height
    across, down = [visible(t) for t in columns], [visible(t) for t in rows]
    largest = _largest(weights)
    cells = [
        _cell(left + c * cell, top + r * cell, cell, w / largest, f"{down[r]} → {across[c]}  {w:.3f}")
        for r, row in enumerate(weights)
        for c, w in enumerate(row)
    ]
    return tag(
        "svg",
        tag("title", title),
        *frame.labels,
        *cells,
        _scale(left, height - 18, largest),
        class_="heat",
        viewBox=f"0 0 {ceil(width)} {ceil(height)}",
        width=ceil(width),
        role="img",
        aria_label=_described(title, weights, down, across),
    )


def small_map(weights: Weights, label: str, size: float = 96, cells: str | None = None) -> Markup:
    """Draw a heat map without labels, for many side by side; few distinct shades keep the page small. The largest weight is
    opaque. `cells` is the id of the drawn cells, for `enlarged_map`."""
    height, width = len(weights), max((len(row) for row in weights), default=0)
    if not height or not width:
        raise ValueError("there are no weights to draw")
    largest = _largest(weights)
    shaded = sorted(
        (min(_LEVELS, round(w / largest * _LEVELS)) if isfinite(w) else 0, r, c)
        for r, row in enumerate(weights)
        for c, w in enumerate(row)
    )
    paths = []
    for level, places in groupby(shaded, key=lambda place: place[0]):
        if level:
            d = "".join(f"M{c} {r}h1v1h-1z" for _, r, c in places)
            paths.append(tag("path", d=d, fill_opacity=number(level / _LEVELS)))
    scale = size / max(height, width)
    return tag(
        "svg",
        tag("title", label),
        tag("g", tag("rect", width=width, height=height, class_="sheet"), *paths, id=cells),
        class_="heat small",
        viewBox=f"0 0 {width} {height}",
        width=round(width * scale),
        height=round(height * scale),
        role="img",
        aria_label=label,
    )


def label_definitions(rows: Sequence[str], columns: Sequence[str], name: str) -> Markup:
    """Define the token labels that all maps of one example share, under the id `name`, without drawing them."""
    labels = tag("g", *_Frame.of(rows, columns).labels, id=name)
    return tag("svg", labels, width=0, height=0, class_="heat defined", aria_hidden="true")


def enlarged_map(rows: Sequence[str], columns: Sequence[str], label: str, labels: str, cells: str) -> Markup:
    """Draw a map large with its token labels, from the ids of `label_definitions` and of the cells of `small_map`."""
    frame = _Frame.of(rows, columns)
    return tag(
        "svg",
        tag("use", href=f"#{labels}"),
        tag(
            "use",
            href=f"#{cells}",
            transform=f"translate({number(frame.left)} {number(frame.top)}) scale({number(frame.cell)})",
        ),
        class_="heat",
        viewBox=f"0 0 {ceil(frame.width)} {ceil(frame.height)}",
        width=ceil(frame.width),
        role="img",
        aria_label=label,
    )


class _Frame(NamedTuple):
    """Where cells and token labels of a heat map stand."""

    cell: float
    left: float
    top: float
    width: float
    height: float
    labels: list[Markup]

    @classmethod
    def of(cls, rows: Sequence[str], columns: Sequence[str]) -> _Frame:
        cell = 26.0 if max(len(rows), len(columns)) <= 24 else 19.0
        across, down = [visible(t) for t in columns], [visible(t) for t in rows]
        left = 12 + max((text_width(t, _FONT) for t in down), default=0)
        longest = max((text_width(t, _FONT) for t in across), default=0)
        top = 14 + _FONT + longest * sin(radians(_SLANT))
        overhang = max(
            (i * cell + cell / 2 + text_width(t, _FONT) * cos(radians(_SLANT)) for i, t in enumerate(across)), default=0
        )
        width = left + max(len(columns) * cell, overhang, _SCALE) + 12
        labels = [
            tag("text", t, x=left - 8, y=top + r * cell + cell / 2 + 4, text_anchor="end", class_="token")
            for r, t in enumerate(down)
        ] + [_slanted(t, left + c * cell + cell / 2 + 3, top - 6) for c, t in enumerate(across)]
        return cls(cell, left, top, width, top + len(rows) * cell + 30, labels)


def _largest(weights: Weights) -> float:
    """The weight that is opaque. The first row of causal attention does not count: its one weight is always 1."""
    first, *others = weights
    causal = others and first[0] > 0 and not any(first[1:])
    return max((w for row in (others if causal else weights) for w in row if isfinite(w)), default=0.0) or 1.0


def _scale(x: float, y: float, largest: float, steps: int = 8) -> Markup:
    """Draw the color scale, from 0 (transparent) to the largest weight (opaque)."""
    cells = [_cell(x + 12 + i * 13, y, 13, i / steps, f"{largest * i / steps:.3f}") for i in range(steps + 1)]
    zero = tag("text", "0", x=x, y=y + 11, class_="tick")
    return join(zero, *cells, tag("text", f"{largest:.2f}", x=x + 18 + (steps + 1) * 13, y=y + 11, class_="tick"))


def _cell(x: float, y: float, size: float, opacity: float, tooltip: str) -> Markup:
    """Draw a square with a tooltip, and opacity clipped to 0 … 1."""
    side = size * 12 / 13
    square = {"x": x, "y": y, "width": side, "height": side, "rx": 2}
    shown = number(min(1.0, max(0.0, opacity)))
    ink = tag("rect", **square, fill_opacity=shown) if shown != "0" else ""
    return tag("g", tag("title", tooltip), tag("rect", **square, class_="sheet"), ink)


def _slanted(text: str, x: float, y: float) -> Markup:
    rotation = f"rotate({number(-_SLANT)} {number(x)} {number(y)})"
    return tag("text", text, x=x, y=y, transform=rotation, class_="token")


def _check(weights: Weights, rows: Sequence[str], columns: Sequence[str]) -> None:
    shape = (len(weights), len(weights[0]) if weights else 0)
    if shape != (len(rows), len(columns)) or any(len(row) != shape[1] for row in weights):
        raise ValueError(f"weights of {shape[0]} × {shape[1]} don't fit {len(rows)} rows and {len(columns)} columns")
    if not rows or not columns:
        raise ValueError("there are no weights to draw")


def _described(title: str, weights: Weights, rows: Sequence[str], columns: Sequence[str]) -> str:
    """Describe the picture in words, for screen readers: the column of each row's largest weight."""
    looks = [
        f"{t} to {columns[max(range(len(columns)), key=row.__getitem__)]}" for t, row in zip(rows, weights, strict=True)
    ]
    return join(title, "; most of each row: ", ", ".join(looks))
