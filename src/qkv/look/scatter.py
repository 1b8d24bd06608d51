"""Scatter plots: points in groups, each with its words in a tooltip; and the projection that makes points of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from markupsafe import Markup
from torch import Tensor

from .svg import join, tag, text_width

_MARGIN = 14.0
_TOP = 50.0  # title, legend and what is said below them


@dataclass(frozen=True)
class Point:
    """x and y in any units; `group` is a place among the groups' names; `said` stands in the tooltip."""

    x: float
    y: float
    group: int
    said: str


def principal(vectors: Float[Tensor, "N M"], count: int = 2) -> Float[Tensor, "N C"]:
    """The coordinates of vectors along the `count` directions in which they differ most (principal components).

    Deterministic: of the two ways along a direction, the one in which its largest component is positive. Missing directions
    are zeros.
    """
    centered = (vectors - vectors.mean(0)).double()
    directions = torch.linalg.svd(centered, full_matrices=False).Vh[:count]
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    found = centered @ (directions * largest.sign()).T
    return torch.nn.functional.pad(found, (0, count - found.shape[1])).float()


def scatter(
    title: str, points: Sequence[Point], groups: Sequence[str], *, note: str = "", width: int = 260, height: int = 220
) -> Markup:
    """Points in one frame, with one scale for both axes, so that distances are true. `note` stands below the legend."""
    if not points:
        raise ValueError("there are no points to draw")
    spans = [max(values) - min(values) for values in ([p.x for p in points], [p.y for p in points])]
    room = (width - 2 * _MARGIN, height - _TOP - 2 * _MARGIN)
    scale = min((r / span for r, span in zip(room, spans, strict=True) if span > 1e-9), default=0.0)
    middle = [(max(values) + min(values)) / 2 for values in ([p.x for p in points], [p.y for p in points])]
    center = (width / 2, _TOP + (height - _TOP) / 2)
    dots = [
        tag(
            "circle",
            tag("title", point.said),
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
