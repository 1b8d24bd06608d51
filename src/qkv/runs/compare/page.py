"""Write the report of a comparison: charts and tables of its measures, costs, and links to the variants' reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from ...io.directories.layout import REPORT, write_text
from ...look.chart import Series, line_chart
from ...look.html import render
from ...look.svg import join, readable, tag
from ..report.story import Section
from ..report.table import table
from .comparison import Comparison
from .costs import VariantCosts
from .measures import Curve, Measurement

_BATCH = "Metrics of the test split; forward and backward passes over the longest validation rows, up to {:,} tokens"


def write_page(
    comparison: Comparison, measurements: Sequence[Measurement], costs: Mapping[str, VariantCosts], out: Path
) -> Path:
    """Write `report.html` and return its path."""
    sections = [section for measurement in measurements for section in _sections(measurement)]
    if costs:
        sections.append(Section("Costs", _costs(costs), _BATCH.format(max(c.tokens for c in costs.values()))))
    sections.append(Section("Variants", _variants(comparison)))
    lead = str(comparison.recipe.get("description") or "")
    page = render(
        "report.html",
        eyebrow="comparison",
        title=comparison.name,
        lead=lead,
        warning="",
        facts=[],
        sections=sections,
    )
    write_text(out / REPORT, page)
    return out / REPORT


def _sections(measurement: Measurement) -> list[Section]:
    """The chart, summary and numbers of a measurement."""
    measure = measurement.measure
    series = [Series(name, curve, dots=True) for name, curve in measurement.curves.items()]
    chart = line_chart(measure.title, series, x_label=measure.x, width=760, height=380, log_x=measure.doubling)
    sections = [Section(measure.title, chart, f"{measure.y} against {measure.x}")]
    sentences = measurement.sentences()
    if sentences:
        sections.append(Section("Summary", tag("ul", *(tag("li", sentence) for sentence in sentences))))
    return [*sections, Section("Numbers", _numbers(measure.x, measurement.curves))]


def _numbers(x_label: str, curves: dict[str, Curve]) -> Markup:
    points = sorted({x for curve in curves.values() for x, _ in curve})
    rows = []
    for name, curve in curves.items():
        values = dict(curve)
        rows.append((name, [readable(values[x], 4) if x in values else "–" for x in points]))
    return table(x_label, [readable(x, 4) for x in points], rows, "Numbers")


def _costs(costs: Mapping[str, VariantCosts]) -> Markup:
    metrics = list(dict.fromkeys(name for one in costs.values() for name in one.metrics))
    names = ["parameters", *metrics, "tokens/s in a step", "MiB kept for the backward pass"]
    rows = []
    for name, one in costs.items():
        scores = [readable(one.metrics[key], 4) if key in one.metrics else "–" for key in metrics]
        values = [f"{one.parameters:,}", *scores, f"{one.tokens / one.seconds:,.0f}", f"{one.kept / 2**20:,.1f}"]
        rows.append((name, values))
    return table("variant", [name.replace("_", " ") for name in names], rows, "Costs")


def _variants(comparison: Comparison) -> Markup:
    items = []
    for name, changes in comparison.variants.items():
        settings = ", ".join(f"{key}={value}" for key, value in changes.items()) or "unchanged"
        items.append(tag("li", tag("a", name, href=f"{name}/{REPORT}"), f": {settings}"))
    return tag("ul", join(*items))
