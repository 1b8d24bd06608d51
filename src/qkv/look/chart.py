"""Line charts as SVG without scripts, for light and dark pages of any width; values are shown in tooltips."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from .svg import join, number, readable, tag, text_width

_FONT = 11.0
_LINE = 16.0
_MOST = 1e300  # larger values are drawn no more than infinity, since their differences can be infinite
_COLORS = 8  # of lines, in the page's style sheet


@dataclass(frozen=True)
class Series:
    """One line through `points` (x, y); points that are not finite are left out. `dots` marks each point, with a circle of
    this radius if it is a number, and without a line between them if not `joined`."""

    name: str
    points: Sequence[tuple[float, float]]
    dots: bool | float = False
    joined: bool = True

    def finite(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in self.points if math.isfinite(x) and abs(y) < _MOST]


@dataclass(frozen=True)
class _Frame:
    """Position of the axes, and the mapping from values to coordinates."""

    left: float
    top: float
    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    log: bool
    log_x: bool

    def x(self, value: float) -> float:
        return self.left + self.width * _fraction(value, self.x_range, self.log_x)

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - _fraction(value, self.y_range, self.log))


def _fraction(value: float, bounds: tuple[float, float], log: bool) -> float:
    """Where a value lies between bounds, from 0 to 1."""
    low, high = bounds
    if log:
        low, high, value = math.log10(low), math.log10(high), math.log10(value)
    return (value - low) / ((high - low) or 1)


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str = "step",
    width: int = 440,
    height: int = 230,
    zero: bool = False,
    log: bool | None = None,
    log_x: bool = False,
    show: Callable[[float], str] = readable,
) -> Markup:
    """Draw lines with a title, a legend if there are several, and tooltips with their values.

    `zero` keeps 0 on the vertical axis. `log=None` takes a logarithmic axis if values span more than a factor of 40.
    `log_x` is for few x values that grow by factors: the axis is logarithmic, with a tick at each value.
    Lines without finite points are left out; without any line the result is empty.
    """
    lines = [replace(s, points=points) for s in series if (points := s.finite())]
    if not lines:
        return Markup("")
    lines = [replace(s, points=thin(s.points)) for s in lines]
    values = [y for s in lines for _, y in s.points]
    if log is None:
        log = not zero and min(values) > 0 and max(values) > 40 * min(values)
    x_values = [x for s in lines for x, _ in s.points]
    low, high = (min(0, *values), max(0, *values)) if zero else (min(values), max(values))
    if low == high == 0:
        high = 1  # a constant 0 lies on the axis, not in the middle of a range around 0
    ticks = _log_ticks(low, high) if log else nice_ticks(low, high)
    y_range = (min(*ticks, *values), max(*ticks, *values))
    every_x = log_x or len(set(x_values)) == 1
    x_ticks = sorted(set(x_values)) if every_x else nice_ticks(min(x_values), max(x_values))
    if all(float(x).is_integer() for x in x_values):
        x_ticks = [tick for tick in x_ticks if float(tick).is_integer()]  # no halves of steps
    labels = _tick_labels(ticks, show)
    left = 10 + max(text_width(label, _FONT) for label in labels)
    dotted = [i for i, s in enumerate(lines) if s.dots and (not s.joined or len(s.points) == 1)]
    names, rows = _legend([s.name for s in lines], width, dotted=dotted) if len(lines) > 1 else (Markup(""), 0)
    top = 30.0 + _LINE * rows
    height += round(_LINE * max(rows - 1, 0))
    frame = _Frame(left, top, width - left - 14, height - top - 34, (min(x_values), max(x_values)), y_range, log, log_x)
    return tag(
        "svg",
        tag("title", title),
        tag("text", title, x=0, y=13, class_="chart-title"),
        names,
        _axes(frame, dict(zip(ticks, labels, strict=True)), x_ticks, x_label),
        *(_line(frame, s, i) for i, s in enumerate(lines)),
        _tooltips(frame, lines, x_label, show),
        class_="chart",
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=_described(title, lines, show),
    )


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers (1, 2 or 5 times a power of ten) that span low … high."""
    if high <= low:
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    stride = max(1, math.ceil((last - first) / 6))
    return [10.0**e for e in range(first, last + stride, stride)]


def thin(points: Sequence[tuple[float, float]], most: int = 300) -> list[tuple[float, float]]:
    """Return about `most` points at most: neighbors are averaged; the first and the last are kept."""
    if len(points) <= most:
        return list(points)
    size = math.ceil((len(points) - 2) / (most - 2))
    inner = points[1:-1]
    groups = [inner[i : i + size] for i in range(0, len(inner), size)]
    means = [(sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups]
    return [points[0], *means, points[-1]]


def legend(names: Sequence[str], width: float, filled: bool = False) -> Markup:
    """Draw names with their colors, in as many rows as they need: lines, or squares if `filled`."""
    return _legend(names, width, filled)[0]


def _legend(
    names: Sequence[str], width: float, filled: bool = False, dotted: Collection[int] = ()
) -> tuple[Markup, int]:
    """The legend and its number of rows. `dotted` are the places of names with a dot instead of a line."""
    parts, x, rows = [], 0.0, 1
    for i, text in enumerate(names):
        name = text_width(text, 1.2 * _FONT)  # letters are larger on phones
        if x and x + 21 + name > width:
            x, rows = 0.0, rows + 1
        y, color = 27 + _LINE * (rows - 1), f"s{i % _COLORS}"
        if filled:
            parts.append(tag("rect", x=x + 5, y=y - 5, width=11, height=11, class_=f"bar {color}"))
        elif i in dotted:
            parts.append(tag("circle", cx=x + 8, cy=y, r=4.5, class_=f"dot {color}"))
        else:
            parts.append(tag("line", x1=x, x2=x + 16, y1=y, y2=y, class_=f"line {color}"))
        parts.append(tag("text", text, x=x + 21, y=y + 4, class_="tick"))
        x += 36 + name
    return join(*parts), rows


def _tick_labels(ticks: Sequence[float], show: Callable[[float], str]) -> list[str]:
    """Label ticks, with as many digits as tell them apart."""
    labels = [show(tick) for tick in ticks]
    digits = 4
    while show is readable and len(set(labels)) < len(labels) and digits <= 8:
        labels = [readable(tick, digits) for tick in ticks]
        digits += 1
    return labels


def _axes(frame: _Frame, ticks: Mapping[float, str], x_ticks: Sequence[float], x_label: str) -> Markup:
    """Draw the axes; `ticks` are the values of the vertical one with their labels."""
    right, bottom = frame.left + frame.width, frame.top + frame.height
    parts = []
    for value, label in ticks.items():
        y = frame.y(value)
        parts.append(tag("line", x1=frame.left, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", label, x=frame.left - 6, y=y + 4, class_="tick", text_anchor="end"))
    low, high = frame.x_range
    for value in x_ticks:
        if low <= value <= high:
            x = frame.x(value)
            parts.append(tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="axis"))
            parts.append(tag("text", readable(value), x=x, y=bottom + 16, class_="tick", text_anchor="middle"))
    parts.append(tag("line", x1=frame.left, x2=right, y1=bottom, y2=bottom, class_="axis"))
    parts.append(tag("text", x_label, x=right, y=bottom + 30, class_="tick", text_anchor="end"))
    return join(*parts)


def _line(frame: _Frame, series: Series, index: int) -> Markup:
    places = [(frame.x(x), frame.y(y)) for x, y in series.points]
    path = "M" + "L".join(f"{number(x, 1)} {number(y, 1)}" for x, y in places)
    color = f"s{index % _COLORS}"
    parts = [tag("path", d=path, class_=f"line {color}")] if series.joined else []
    if series.dots or len(places) == 1:
        radius = 2.6 if isinstance(series.dots, bool) else series.dots
        parts += [tag("circle", cx=x, cy=y, r=radius, class_=f"dot {color}") for x, y in places]
    return join(*parts)


def _tooltips(frame: _Frame, lines: Sequence[Series], x_label: str, show: Callable[[float], str]) -> Markup:
    """Draw invisible bands with the values in tooltips, at up to about 60 points of the line that has most."""
    guide = max(lines, key=lambda s: len(s.points))
    stride = max(1, len(guide.points) // 60)
    stops = [x for x, _ in guide.points[::stride]]
    parts = []
    for i, stop in enumerate(stops):
        before = frame.x((stops[i - 1] + stop) / 2) if i else frame.left
        after = frame.x((stops[i + 1] + stop) / 2) if i + 1 < len(stops) else frame.left + frame.width
        near = [(s.name, min(s.points, key=lambda p: abs(p[0] - stop))) for s in lines if s.joined]
        tooltip = "\n".join([f"{x_label} {readable(stop, 4)}", *(f"{name} {show(y)}" for name, (_, y) in near)])
        band = {"x": before, "y": frame.top, "width": after - before, "height": frame.height}
        parts.append(tag("rect", tag("title", tooltip), **band, class_="hit"))
    return join(*parts)


def _described(title: str, lines: Sequence[Series], show: Callable[[float], str]) -> str:
    """Describe the chart in words, for screen readers."""
    ranges = [f"{s.name} from {show(s.points[0][1])} to {show(s.points[-1][1])}" for s in lines if s.joined]
    return f"{title}: {'; '.join(ranges)}"
