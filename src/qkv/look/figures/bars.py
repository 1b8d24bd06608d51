"""Horizontal bars with their values, grouped by label, as an SVG file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from markupsafe import Markup

from ..chart import legend
from ..standalone_svg import WIDTH, save
from ..svg import join, readable, tag, text_width

_BAR, _GAP, _TOP = 13.0, 9.0, 30.0
_FONT = 12.0


def bars(
    file: Path | str, title: str, series: Mapping[str, Mapping[str, float]], show: Callable[[float], str] = readable
) -> None:
    """Draw `series[name][label]`, not negative: a group of bars for each label, with a bar for each name that has it.

    `show` formats the values. Names are in a legend if there are several.
    """
    save(file, chart(title, series, show))


def chart(title: str, series: Mapping[str, Mapping[str, float]], show: Callable[[float], str] = readable) -> Markup:
    """Return the bars as SVG markup."""
    labels = list(dict.fromkeys(label for values in series.values() for label in values))
    every = [value for values in series.values() for value in values.values()]
    if not every or min(every) < 0:
        raise ValueError("bars need at least one value, and none below 0")
    left = 8 + max(text_width(label, _FONT) for label in labels)
    room = WIDTH - left - 6 - max(text_width(show(value), _FONT) for value in every)
    scale = room / (max(every) or 1.0)
    y, parts = _TOP + (16 if len(series) > 1 else 0), []
    for label in labels:
        group = [(i, values[label]) for i, values in enumerate(series.values()) if label in values]
        middle = y + len(group) * _BAR / 2
        parts.append(tag("text", label, x=left - 8, y=middle + 4, class_="ink", text_anchor="end"))
        for i, value in group:
            width = value * scale
            parts.append(tag("rect", x=left, y=y, width=width, height=_BAR - 2, class_=f"bar s{i % 4}"))
            parts.append(tag("text", show(value), x=left + width + 5, y=y + _BAR - 3, class_="tick"))
            y += _BAR
        y += _GAP
    names = legend(list(series), WIDTH, filled=True) if len(series) > 1 else Markup("")
    return tag(
        "svg",
        tag("title", title),
        tag("text", title, x=0, y=13, class_="chart-title"),
        names,
        join(*parts),
        class_="chart",
        viewBox=f"0 0 {WIDTH} {round(y)}",
        role="img",
        aria_label=title,
    )
