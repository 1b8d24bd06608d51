"""A timeline of several workers as an SVG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from ..chart import legend
from ..standalone_svg import WIDTH, save
from ..svg import join, tag, text_width

_FONT, _ROW = 12.0, 26.0


@dataclass(frozen=True)
class WorkSpan:
    """A period of work that begins at `start` and lasts `length`. `kind` selects its color; `label` is drawn inside."""

    start: float
    length: float
    kind: str
    label: str = ""


def timeline(file: Path | str, title: str, rows: Mapping[str, Sequence[WorkSpan]]) -> None:
    """Draw the spans of each row along a time axis. Gaps are idle time. There are at most four kinds."""
    save(file, chart(title, rows))


def chart(title: str, rows: Mapping[str, Sequence[WorkSpan]]) -> Markup:
    """Return the timeline as SVG markup."""
    kinds = list(dict.fromkeys(span.kind for spans in rows.values() for span in spans))
    end = max((span.start + span.length for spans in rows.values() for span in spans), default=0.0)
    if not end:
        raise ValueError("there is nothing on the timeline")
    left = 8 + max(text_width(name, _FONT) for name in rows)
    scale, top = (WIDTH - left) / end, 38.0
    parts = []
    for r, (name, spans) in enumerate(rows.items()):
        y = top + r * _ROW
        parts.append(tag("text", name, x=left - 8, y=y + 15, class_="ink", text_anchor="end"))
        parts.append(tag("rect", x=left, y=y, width=end * scale, height=_ROW - 4, class_="sheet"))
        for span in spans:
            x, width = left + span.start * scale, span.length * scale
            color = f"bar s{kinds.index(span.kind) % 4}"
            parts.append(tag("rect", x=x, y=y, width=width - 1, height=_ROW - 4, class_=color))
            if span.label:
                middle = x + (width - 1) / 2
                parts.append(tag("text", span.label, x=middle, y=y + 15, class_="on", text_anchor="middle"))
    height = top + len(rows) * _ROW
    return tag(
        "svg",
        tag("title", title),
        tag("text", title, x=0, y=13, class_="chart-title"),
        legend(kinds, WIDTH, filled=True),
        join(*parts),
        tag("text", "time →", x=WIDTH, y=height + 10, class_="tick", text_anchor="end"),
        class_="chart",
        viewBox=f"0 0 {WIDTH} {round(height + 16)}",
        role="img",
        aria_label=title,
    )
