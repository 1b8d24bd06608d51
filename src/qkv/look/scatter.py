"""Scatter plots of grouped points with tooltips as SVG, and principal components to project vectors to points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from markupsafe import Markup
from torch import Tensor

from .svg import join, tag, text_width

_MARGIN = 14.0
_TOP = 50.0  # height of title, legend and note


@dataclass(frozen=True)
class Point:
    """x and y in any units; `group` is the index of its group; `tooltip` is its text."""

    x: float
    y: float
    group: int
    tooltip: str


def principal(vectors: Float[Tensor, "N M"], count: int = 2) -> Float[Tensor, "N C"]:
    """Project vectors on their first `count` principal components.

    Signs are deterministic: the largest element of each component is positive. Missing components are zeros. Vectors that
    are not all finite have no components: all are NaN.
    """
    if not bool(vectors.isfinite().all()):
        return torch.full((len(vectors), count), math.nan)
    centered = (vectors - vectors.mean(0)).double()
    directions = torch.linalg.svd(centered, full_matrices=False).Vh[:count]
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    coordinates = centered @ (directions * largest.sign()).T
    return torch.nn.functional.pad(coordinates, (0, count - coordinates.shape[1])).float()


def scatter(
    title: str, points: Sequence[Point], groups: Sequence[str], *, note: str = "", width: int = 260, height: int = 220
) -> Markup:
    """Draw points with one scale for both axes, so distances are true. `note` is a line below the legend."""
    if not points:
        raise ValueError("there are no points to draw")
    finite = [p for p in points if math.isfinite(p.x) and math.isfinite(p.y)]
    if len(finite) < len(points):
        note = f"{len(points) - len(finite)} of {len(points)} points are not finite numbers and not drawn"
    points = finite
    axes = [p.x for p in points], [p.y for p in points]
    spans = [max(values, default=0.0) - min(values, default=0.0) for values in axes]
    room = (width - 2 * _MARGIN, height - _TOP - 2 * _MARGIN)
    scale = min((r / span for r, span in zip(room, spans, strict=True) if span > 1e-9), default=0.0)
    middle = [(max(values, default=0.0) + min(values, default=0.0)) / 2 for values in axes]
    center = (width / 2, _TOP + (height - _TOP) / 2)
    dots = [
        tag(
            "circle",
            tag("title", point.tooltip),
            cx=center[0] + (point.x - middle[0]) * scale,
            cy=center[1] - (point.y - middle[1]) * scale,
            r=3.6,
            fill_opacity=0.75,
            class_=f"dot s{point.group % 6}",
        )
        for point in points
    ]
    return tag(
        "svg",
        tag("title", title),
        tag("text", title, x=0, y=13, class_="chart-title"),
        _legend(groups),
        tag("text", note, x=0, y=47, class_="tick") if note else "",
        *dots,
        class_="chart",
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=": ".join(filter(None, (title, note))),
    )


def _legend(groups: Sequence[str]) -> Markup:
    parts, x = [], 4.0
    for i, name in enumerate(groups):
        parts.append(tag("circle", cx=x, cy=27.0, r=3.6, class_=f"dot s{i % 6}"))
        parts.append(tag("text", name, x=x + 8, y=31, class_="tick"))
        x += 24 + text_width(name, 11)
    return join(*parts)
