"""Charts as a standalone SVG file with its own style sheet, for light and dark pages."""

from __future__ import annotations

from markupsafe import Markup

from .svg import tag

WIDTH, HEIGHT = 488, 256  # of a chart
_MARGIN, _BELOW = 16, 8

_STYLE = """
svg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
.page { fill: #fbfaf8; } .chart-title { fill: #1c1b22; font-size: 13px; font-weight: 600; }
.tick { fill: #5d5b68; font-size: 11px; } .grid { stroke: #e4e1db; } .axis { stroke: #a5a1b5; } .hit { fill: transparent; }
.line { fill: none; stroke-width: 1.8; } .line.s0 { stroke: #3b2fb5; } .line.s1 { stroke: #d2611c; }
.line.s2 { stroke: #0f8a7e; } .line.s3 { stroke: #b3246e; } .dot.s0 { fill: #3b2fb5; } .dot.s1 { fill: #d2611c; }
.dot.s2 { fill: #0f8a7e; } .dot.s3 { fill: #b3246e; }
.line.s1 { stroke-dasharray: 7 4; } .line.s2 { stroke-dasharray: 1.5 4; } .line.s3 { stroke-dasharray: 10 4 2 4; }
@media (prefers-color-scheme: dark) {
  .page { fill: #131217; } .chart-title { fill: #ebe9f2; } .tick { fill: #a29fb0; } .grid { stroke: #32303b; }
  .axis { stroke: #6a6680; } .line.s0 { stroke: #a79bff; } .line.s1 { stroke: #ffa263; } .line.s2 { stroke: #56cfc1; }
  .line.s3 { stroke: #f78fc0; } .dot.s0 { fill: #a79bff; } .dot.s1 { fill: #ffa263; } .dot.s2 { fill: #56cfc1; }
  .dot.s3 { fill: #f78fc0; }
}
"""


def figure(*charts: Markup) -> str:
    """Put charts of `line_chart` side by side, each WIDTH × HEIGHT with up to four lines."""
    width, height = _MARGIN + len(charts) * (WIDTH + _MARGIN), HEIGHT + _MARGIN + _BELOW
    columns = (
        tag("svg", chart, x=_MARGIN + i * (WIDTH + _MARGIN), y=_MARGIN, width=WIDTH, height=HEIGHT)
        for i, chart in enumerate(charts)
    )
    return tag(
        "svg",
        tag("style", Markup(_STYLE)),
        tag("rect", width=width, height=height, rx=10, class_="page"),
        *columns,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=width,
    )
