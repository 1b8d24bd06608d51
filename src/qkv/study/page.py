"""The page of a comparison: its curves in one picture, the numbers below, and the way to each variant's own report."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from ..look.chart import Series, line_chart
from ..look.html import render
from ..look.svg import join, readable, tag
from ..run.directory import REPORT, write_text
from ..run.report import Section
from .comparison import Comparison
from .measures import Curve


def write_page(comparison: Comparison, curves: dict[str, Curve], out: Path) -> Path:
    """Write `report.html` and return its path."""
    measure = comparison.measure
    series = [Series(name, curve, dots=True) for name, curve in curves.items()]
    chart = line_chart(measure.title, series, x_label=measure.x, width=760, height=380, log_x=measure.doubling)
    sections = [
        Section(measure.title, chart, f"{measure.y} against {measure.x}"),
        Section("Numbers", _table(measure.x, curves)),
        Section("Variants", _variants(comparison)),
    ]
    told = measure.told(curves)
    if told:
        sections.insert(1, Section("What it says", tag("ul", *(tag("li", sentence) for sentence in told))))
    lead = str(comparison.recipe.get("description") or "")
    page = render("report.html", title=comparison.name, lead=lead, facts=[], sections=sections)
    write_text(out / REPORT, page)
    return out / REPORT


def _table(x: str, curves: dict[str, Curve]) -> Markup:
    places = sorted({place for curve in curves.values() for place, _ in curve})
    head = tag("tr", tag("th", x), *(tag("th", readable(place, 4)) for place in places))
    rows = []
    for name, curve in curves.items():
        values = dict(curve)
        cells = (tag("td", readable(values[place], 4) if place in values else "–") for place in places)
        rows.append(tag("tr", tag("th", name), *cells))
    return tag("table", tag("thead", head), tag("tbody", *rows), class_="numbers")


def _variants(comparison: Comparison) -> Markup:
    items = []
    for name, changes in comparison.variants.items():
        settings = ", ".join(f"{key}={value}" for key, value in changes.items()) or "as it is"
        items.append(tag("li", tag("a", name, href=f"{name}/{REPORT}"), f": {settings}"))
    return tag("ul", join(*items))
