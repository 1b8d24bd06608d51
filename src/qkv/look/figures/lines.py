"""A line chart as an SVG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..chart import Series, line_chart
from ..standalone_svg import HEIGHT, WIDTH, save

Points = Sequence[tuple[float, float]]


def lines(
    file: Path | str,
    title: str,
    series: Mapping[str, Points],
    *,
    x_label: str = "step",
    zero: bool = False,
    log: bool | None = None,
    log_x: bool = False,
    dots: bool = False,
) -> None:
    """Draw up to four lines, points (x, y) by name. The options are the options of `line_chart`; `dots` marks each point."""
    drawn = [Series(name, points, dots) for name, points in series.items()]
    chart = line_chart(title, drawn, x_label=x_label, width=WIDTH, height=HEIGHT, zero=zero, log=log, log_x=log_x)
    save(file, chart)
