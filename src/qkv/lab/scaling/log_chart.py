"""Log–log charts of points, curves and bands as SVG without scripts, for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ...look.chart import nice_ticks
from ...look.svg import join, number, readable, tag, text_width

_FONT = 11.0
_LINE = 16.0
_COLORS = 8
_MARK = 3.6  # half of a mark's width
_SHAPES = ("circle", "square", "diamond", "triangle")


@dataclass(frozen=True)
class ChartLayer:
    """Points (x, y) of one name, drawn as a curve, as marks, or as both; the shape of marks and the dashes of curves differ.

    band:     (x, low, high) of an interval around the curve.
    tooltips: a text for each mark.
    color:    index of the color, dashes and shape; by default the layer's own position.
    """

    name: str
    points: Sequence[tuple[float, float]]
    marks: bool = False
    curve: bool = True
    band: Sequence[tuple[float, float, float]] = ()
    tooltips: Sequence[str] = ()
    color: int | None = None


@dataclass(frozen=True)
class _Axis:
    """Values from `low` to `high`, on a logarithmic scale, at coordinates from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + (self.end - self.start) * share

    def ticks(self) -> list[float]:
        """Powers of ten over some decades, 1, 2 and 5 times these over fewer, and round numbers over less."""
        decades = math.log10(self.high / self.low)
        if decades < 0.7:
            return [tick for tick in nice_ticks(self.low, self.high, 5) if self.low <= tick <= self.high]
        factors = (1, 2, 5) if decades < 2.5 else (1,)
        stride = max(1, math.ceil(decades / 7))
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1, stride)
        return [tick for power in powers for f in factors if self.low <= (tick := f * 10.0**power) <= self.high]


def log_chart(
    title: str,
    layers: Sequence[ChartLayer],
    *,
    x_label: str,
    y_label: str,
    width: int = 600,
    height: int = 360,
    show_x: Callable[[float], str] = readable,
) -> Markup:
    """Draw layers on logarithmic axes, with a legend. All values are positive; bands extend the axes, too.

    Raises ValueError if there is nothing to draw.
    """
    xs = [x for layer in layers for x, _ in layer.points]
    ys = [y for layer in layers for _, y in layer.points] + [
        y for layer in layers for _, *ends in layer.band for y in ends
    ]
    if not xs:
        raise ValueError("there are no points to draw")
    legend, rows = _legend(layers, width)
    top = 34.0 + _LINE * (rows + 1)
    y_range = _padded(min(ys), max(ys), 0.04)
    labels = {tick: readable(tick) for tick in _Axis(*y_range, 0, 1).ticks()}
    left = 10 + max((text_width(label, _FONT) for label in labels.values()), default=0.0)
    x_axis = _Axis(*_padded(min(xs), max(xs), 0.03), left, width - 16.0)
    y_axis = _Axis(*y_range, height - 38.0, top)
    return tag(
        "svg",
        tag("title", title),
        tag("text", title, x=0, y=13, class_="chart-title"),
        legend,
        tag("text", y_label, x=0, y=top - 10, class_="tick"),
        _axes(x_axis, y_axis, labels, x_label, show_x),
        *(_band(layer, _color(layer, i), x_axis, y_axis) for i, layer in enumerate(layers) if layer.band),
        *(_curve(layer, _color(layer, i), x_axis, y_axis) for i, layer in enumerate(layers) if layer.curve),
        *(_marks(layer, _color(layer, i), x_axis, y_axis) for i, layer in enumerate(layers) if layer.marks),
        class_="chart",
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=f"{title}: {y_label} against {x_label}; {', '.join(layer.name for layer in layers if layer.name)}",
    )


def _color(layer: ChartLayer, index: int) -> int:
    return (index if layer.color is None else layer.color) % _COLORS


def _padded(low: float, high: float, share: float) -> tuple[float, float]:
    """The range with a margin of this share of it on both sides, and of 10 % around a single value."""
    room = math.log(high / low) * share if high > low else math.log(1.1)
    return low * math.exp(-room), high * math.exp(room)


def _legend(layers: Sequence[ChartLayer], width: float) -> tuple[Markup, int]:
    """Draw a sample and the name of each layer that has one; return the number of rows too."""
    parts, x, rows = [], 0.0, 1
    for i, layer in enumerate(layers):
        if not layer.name:
            continue
        name, color = text_width(layer.name, 1.2 * _FONT), _color(layer, i)
        if x and x + 21 + name > width:
            x, rows = 0.0, rows + 1
        y = 27 + _LINE * (rows - 1)
        if layer.curve:
            parts.append(tag("line", x1=x, x2=x + 16, y1=y, y2=y, class_=f"line s{color}"))
        if layer.marks:
            parts.append(_mark(x + 8, y, color))
        parts.append(tag("text", layer.name, x=x + 21, y=y + 4, class_="tick"))
        x += 36 + name
    return join(*parts), rows


def _axes(
    x_axis: _Axis, y_axis: _Axis, labels: dict[float, str], x_label: str, show_x: Callable[[float], str]
) -> Markup:
    left, right, bottom = x_axis.start, x_axis.end, y_axis.start
    parts = []
    for value, label in labels.items():
        y = y_axis(value)
        parts.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", label, x=left - 6, y=y + 4, class_="tick", text_anchor="end"))
    for value in x_axis.ticks():
        x = x_axis(value)
        parts.append(tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="axis"))
        parts.append(tag("text", show_x(value), x=x, y=bottom + 16, class_="tick", text_anchor="middle"))
    parts.append(tag("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis"))
    parts.append(tag("text", x_label, x=right, y=bottom + 33, class_="tick", text_anchor="end"))
    return join(*parts)


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{number(x, 1)} {number(y, 1)}" for x, y in places)


def _band(layer: ChartLayer, color: int, x_axis: _Axis, y_axis: _Axis) -> Markup:
    upper = [(x_axis(x), y_axis(high)) for x, _, high in layer.band]
    lower = [(x_axis(x), y_axis(low)) for x, low, _ in reversed(layer.band)]
    return tag("path", d=f"{_path([*upper, *lower])}Z", class_=f"dot s{color}", fill_opacity=0.16)


def _curve(layer: ChartLayer, color: int, x_axis: _Axis, y_axis: _Axis) -> Markup:
    return tag("path", d=_path([(x_axis(x), y_axis(y)) for x, y in layer.points]), class_=f"line s{color}")


def _marks(layer: ChartLayer, color: int, x_axis: _Axis, y_axis: _Axis) -> Markup:
    tooltips = layer.tooltips or [f"{readable(x, 4)}: {readable(y, 4)}" for x, y in layer.points]
    marks = zip(layer.points, tooltips, strict=True)
    return join(*(_mark(x_axis(x), y_axis(y), color, tag("title", tooltip)) for (x, y), tooltip in marks))


def _mark(x: float, y: float, color: int, *children: Markup) -> Markup:
    """Draw a mark whose shape tells its color."""
    shape, r, css = _SHAPES[color % len(_SHAPES)], _MARK, f"dot s{color}"
    if shape == "circle":
        return tag("circle", *children, cx=x, cy=y, r=r, class_=css)
    corners = {
        "square": [(-r, -r), (r, -r), (r, r), (-r, r)],
        "diamond": [(0, -1.35 * r), (1.35 * r, 0), (0, 1.35 * r), (-1.35 * r, 0)],
        "triangle": [(0, -1.3 * r), (1.2 * r, r), (-1.2 * r, r)],
    }[shape]
    return tag("path", *children, d=f"{_path([(x + dx, y + dy) for dx, dy in corners])}Z", class_=css)
