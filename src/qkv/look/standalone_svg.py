"""Charts as a standalone SVG file with its own style sheet, for light and dark pages and for phones."""

from __future__ import annotations

import re
from pathlib import Path

from markupsafe import Markup

from ..core.atomic import write_file
from .svg import tag

WIDTH, HEIGHT = 400, 230  # of a chart, in pixels; text stays legible at the width of a phone
_MARGIN, _GAP = 14, 18
_SCALE = 1.3  # of the picture if there is room
_VIEW_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')

_LIGHT, _DARK = ("#3b2fb5", "#d2611c", "#0f8a7e", "#b3246e"), ("#a79bff", "#ffa263", "#56cfc1", "#f78fc0")


def _colors(colors: tuple[str, ...]) -> str:
    return " ".join(
        f".line.s{i} {{ stroke: {color}; }} .dot.s{i}, .bar.s{i} {{ fill: {color}; }}" for i, color in enumerate(colors)
    )


_STYLE = f"""
svg svg {{ overflow: visible; }}
svg {{ font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }}
.page {{ fill: #fbfaf8; }} .chart-title {{ fill: #1c1b22; font-size: 13px; font-weight: 600; }}
.tick {{ fill: #5d5b68; font-size: 12px; }} .grid {{ stroke: #e4e1db; }} .axis {{ stroke: #a5a1b5; }}
.hit {{ fill: transparent; }}
.ink {{ fill: #1c1b22; font-size: 12px; }} .sheet {{ fill: #f1efea; }} .on {{ fill: #ffffff; font-size: 11px; }}
.branch {{ fill: none; stroke: #a5a1b5; stroke-width: 1.5; }} .faint {{ opacity: 0.55; }}
.line {{ fill: none; stroke-width: 1.8; }} {_colors(_LIGHT)}
.line.s1 {{ stroke-dasharray: 7 4; }} .line.s2 {{ stroke-dasharray: 1.5 4; }} .line.s3 {{ stroke-dasharray: 10 4 2 4; }}
@media (prefers-color-scheme: dark) {{
  .page {{ fill: #131217; }} .chart-title, .ink {{ fill: #ebe9f2; }} .tick {{ fill: #a29fb0; }} .grid {{ stroke: #32303b; }}
  .axis, .branch {{ stroke: #6a6680; }} .sheet {{ fill: #25232d; }} .on {{ fill: #131217; }}
  {_colors(_DARK)}
}}
"""


def figure(*charts: Markup) -> str:
    """Put charts, each WIDTH wide and with up to four lines, one below the other."""
    placed, y = [], float(_MARGIN)
    for chart in charts:
        width, height = size(chart)
        placed.append(tag("svg", chart, x=_MARGIN, y=y, width=WIDTH, height=height * WIDTH / width))
        y += height * WIDTH / width + _GAP
    width, height = WIDTH + 2 * _MARGIN, round(y - _GAP + _MARGIN)
    return tag(
        "svg",
        tag("style", Markup(_STYLE)),
        tag("rect", width=width, height=height, rx=10, class_="page"),
        *placed,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=round(_SCALE * width),
    )


def save(path: Path | str, *charts: Markup) -> None:
    """Write `figure(*charts)` to a file."""
    write_file(Path(path), figure(*charts).encode())


def size(chart: Markup) -> tuple[float, float]:
    """Width and height of a chart, from its view box."""
    found = _VIEW_BOX.search(chart)
    if found is None:
        raise ValueError("a chart needs a viewBox that begins at 0 0")
    return float(found[1]), float(found[2])
