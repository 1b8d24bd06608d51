"""Dot plots for the docs: one row a comparison, one dot a contender, in an SVG that follows light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from qkv.look.svg import tag, text_width

WIDTH, SCALE = 460, 1.3  # narrow, so letters are legible on phones, and larger if there is room
_LEFT, _RIGHT = 20, 20
_ROW, _LEGEND, _TOP, _BOTTOM = 34, 17, 48, 44

_STYLE = """
svg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
.page { fill: #fbfaf8; } .title { fill: #1c1b22; font-size: 14px; font-weight: 600; }
.label { fill: #1c1b22; font-size: 12px; stroke: #fbfaf8; stroke-width: 4; paint-order: stroke; }
.tick { fill: #5d5b68; font-size: 11px; }
.grid { stroke: #e4e1db; } .zero { stroke: #a5a1b5; stroke-width: 1.5; }
.s0 { fill: #3b2fb5; stroke: #3b2fb5; } .s1 { fill: #d2611c; stroke: #d2611c; }
.s2 { fill: #0f8a7e; stroke: #0f8a7e; } .s3 { fill: #b3246e; stroke: #b3246e; } .range { stroke-width: 2; opacity: 0.35; }
@media (prefers-color-scheme: dark) {
  .page { fill: #131217; } .title, .label { fill: #ebe9f2; } .label { stroke: #131217; }
  .tick { fill: #a29fb0; } .grid { stroke: #32303b; }
  .zero { stroke: #6a6680; } .s0 { fill: #a79bff; stroke: #a79bff; } .s1 { fill: #ffa263; stroke: #ffa263; }
  .s2 { fill: #56cfc1; stroke: #56cfc1; } .s3 { fill: #f78fc0; stroke: #f78fc0; }
}
"""


@dataclass(frozen=True)
class Dot:
    """A value with its range; `group` is its place in the legend, `name` and `shown` are its tooltip."""

    value: float
    name: str
    group: int
    shown: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Axis:
    """The horizontal axis: its ticks, the value that everything is compared with, and whether it is logarithmic."""

    label: str
    ticks: Sequence[float]
    unit: str = ""
    reference: float | None = None
    log: bool = False

    def x(self, value: float) -> float:
        """Where a value stands; what lies outside is drawn at the edge."""
        scale = math.log if self.log else float
        low, high = scale(self.ticks[0]), scale(self.ticks[-1])
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * min(max((scale(value) - low) / (high - low), 0), 1)


def dots(title: str, rows: Sequence[tuple[str, Sequence[Dot]]], legend: Sequence[str], axis: Axis) -> str:
    """The figure as SVG; a row is its label, and its dots below it."""
    names, top = _legend(legend)
    height = top + _ROW * len(rows) + _BOTTOM
    described = "; ".join(f"{label}: " + ", ".join(f"{dot.name} {dot.shown}" for dot in found) for label, found in rows)
    parts = [
        tag("style", Markup(_STYLE)),
        tag("rect", width=WIDTH, height=height, rx=10, class_="page"),
        tag("text", title, x=16, y=24, class_="title"),
        *names,
        *_grid(axis, top, height),
        *(part for i, (label, found) in enumerate(rows) for part in _row(label, found, axis, top + _ROW * (i + 0.75))),
    ]
    return tag(
        "svg",
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height}",
        width=round(SCALE * WIDTH),
        role="img",
        aria_label=f"{title}. {described}",
    )


def _legend(names: Sequence[str]) -> tuple[list[Markup], float]:
    """The names with their colors, in as many lines as they need, and where the rows begin below them."""
    parts, x, y = list[Markup](), 22.0, 42.0
    for group, name in enumerate(names):
        if parts and x + 10 + text_width(name, 11) > WIDTH - _RIGHT:
            x, y = 22.0, y + _LEGEND
        parts.append(tag("circle", cx=x, cy=y, r=4.5, class_=f"s{group}"))
        parts.append(tag("text", name, x=x + 10, y=y + 4, class_="tick"))
        x += 34 + text_width(name, 11)
    return parts, _TOP - 42 + y


def _grid(axis: Axis, top: float, height: float) -> list[Markup]:
    bottom, parts = height - _BOTTOM, []
    for value in axis.ticks:
        x, class_ = axis.x(value), "zero" if value == axis.reference else "grid"
        parts.append(tag("line", x1=x, x2=x, y1=top + 4, y2=bottom + 4, class_=class_))
        parts.append(tag("text", f"{value:g}{axis.unit}", x=x, y=bottom + 18, class_="tick", text_anchor="middle"))
    parts.append(tag("text", axis.label, x=WIDTH - _RIGHT, y=bottom + 35, class_="tick", text_anchor="end"))
    return parts


def _row(label: str, found: Sequence[Dot], axis: Axis, y: float) -> list[Markup]:
    parts = [tag("text", label, x=_LEFT, y=y - 9, class_="label")]
    for dot in found:
        if dot.low is not None and dot.high is not None:
            ends = {"x1": axis.x(dot.low), "x2": axis.x(dot.high), "y1": y, "y2": y}
            parts.append(tag("line", **ends, class_=f"s{dot.group} range"))
    for dot in sorted(found, key=lambda dot: -dot.group):
        name = tag("title", f"{label}, {dot.name}: {dot.shown}")
        parts.append(tag("circle", name, cx=axis.x(dot.value), cy=y, r=4.5, class_=f"s{dot.group}"))
    return parts
