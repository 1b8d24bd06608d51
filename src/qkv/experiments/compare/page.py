"""Write the report of a comparison: charts and tables of its measures, costs, and links to the variants' reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup

from ...directories.layout import REPORT, write_text
from ...inference.run import Run
from ...look.chart import Series, line_chart
from ...look.html import render
from ...look.svg import join, readable, tag
from ..report.story import Section
from .comparison import Comparison
from .costs import Costs
from .measures import Curve, Measure

_BATCH = "Metrics of the test split; forward and backward passes over the longest validation rows, up to {:,} tokens"


@dataclass
class Found:
    """What one measure found of the variants so far."""

    measure: Measure
    curves: dict[str, Curve] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, run: Run) -> None:
        self.curves[name] = curve = self.measure(run)
        if curve and (remark := self.measure.remark(run, curve)):
            self.remarks[name] = remark

    def sentences(self) -> list[str]:
        return [*self.measure.told(self.curves), *(f"{name}: {remark}." for name, remark in self.remarks.items())]


def write_page(comparison: Comparison, found: Sequence[Found], spent: Mapping[str, Costs], out: Path) -> Path:
    """Write `report.html` and return its path."""
    sections = [section for one in found for section in _sections(one)]
    if spent:
        sections.append(Section("What each costs", _costs(spent), _BATCH.format(max(c.tokens for c in spent.values()))))
    sections.append(Section("Variants", _variants(comparison)))
    lead = str(comparison.recipe.get("description") or "")
    page = render("report.html", title=comparison.name, lead=lead, facts=[], sections=sections)
    write_text(out / REPORT, page)
    return out / REPORT


def _sections(found: Found) -> list[Section]:
    """A measure's picture, what it says and its numbers."""
    measure = found.measure
    series = [Series(name, curve, dots=True) for name, curve in found.curves.items()]
    chart = line_chart(measure.title, series, x_label=measure.x, width=760, height=380, log_x=measure.doubling)
    made = [Section(measure.title, chart, f"{measure.y} against {measure.x}")]
    said = found.sentences()
    if said:
        made.append(Section("What it says", tag("ul", *(tag("li", sentence) for sentence in said))))
    return [*made, Section("Numbers", _table(measure.x, found.curves))]


def _table(x: str, curves: dict[str, Curve]) -> Markup:
    places = sorted({place for curve in curves.values() for place, _ in curve})
    head = tag("tr", tag("th", x), *(tag("th", readable(place, 4)) for place in places))
    rows = []
    for name, curve in curves.items():
        values = dict(curve)
        cells = (tag("td", readable(values[place], 4) if place in values else "–") for place in places)
        rows.append(tag("tr", tag("th", name), *cells))
    return tag("table", tag("thead", head), tag("tbody", *rows), class_="numbers")


def _costs(spent: Mapping[str, Costs]) -> Markup:
    metrics = list(dict.fromkeys(name for one in spent.values() for name in one.metrics))
    names = ["parameters", *metrics, "tokens/s, a step", "MiB kept for the backward pass"]
    rows = []
    for name, one in spent.items():
        judged = [readable(one.metrics[key], 4) if key in one.metrics else "–" for key in metrics]
        said = [f"{one.parameters:,}", *judged, f"{one.tokens / one.seconds:,.0f}", f"{one.kept / 2**20:,.1f}"]
        rows.append(tag("tr", tag("th", name), *(tag("td", value) for value in said)))
    head = tag("tr", tag("th", ""), *(tag("th", name.replace("_", " ")) for name in names))
    return tag("table", tag("thead", head), tag("tbody", *rows), class_="numbers")


def _variants(comparison: Comparison) -> Markup:
    items = []
    for name, changes in comparison.variants.items():
        settings = ", ".join(f"{key}={value}" for key, value in changes.items()) or "as it is"
        items.append(tag("li", tag("a", name, href=f"{name}/{REPORT}"), f": {settings}"))
    return tag("ul", join(*items))
