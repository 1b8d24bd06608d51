"""Write the report of an ablation: table, differences from the baseline, curves, costs, and links to the runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from markupsafe import Markup

from ...core.metrics.bootstrap import SAMPLES
from ...core.metrics.display import display_of
from ...core.spec import counted
from ...io.directories.layout import REPORT
from ...look.chart import Series, line_chart
from ...look.formatting import scaled, shown
from ...look.svg import join, readable, tag
from ...runs.report.story import Section
from ...runs.report.table import table
from ..studies.page import file_list, write_report
from .ablation import Ablation
from .single_run import RunResult
from .summary import AblationSummary, VariantRow
from .tables import FILES, cells, same_results, signed

_LINES = 8  # variants drawn in one chart

_BUDGETS = {
    "steps": "All variants were trained for the same number of steps.",
    "tokens": "All variants were trained on the same number of tokens.",
    "flops": "All variants were trained with the same number of FLOPs.",
    "time": "All variants were trained for the same time; other work on the machine affects the result.",
}


def write_page(
    ablation: Ablation, summary: AblationSummary, results: Mapping[tuple[str, int], RunResult], out: Path
) -> Path:
    """Write `report.html` and return its path."""
    sections = [
        _table(summary),
        _differences(summary),
        _measured_curves(ablation, summary),
        _progress(summary),
        _costs(summary),
        _variants(ablation, summary, results),
        _files(),
    ]
    return write_report(
        out / REPORT,
        "ablation",
        summary.name,
        sections,
        lead=str(ablation.recipe.get("description") or ""),
        warning=_warning(summary),
        facts=_facts(summary),
    )


def _warning(summary: AblationSummary) -> str:
    diverged = [f"{row.label} ({counted(len(row.diverged), 'run')})" for row in summary.rows if row.diverged]
    said = [f"Diverged, and left out of the means: {', '.join(diverged)}."] if diverged else []
    return " ".join([*said, *same_results(summary)])


def _facts(summary: AblationSummary) -> list[tuple[str, str, str]]:
    facts = [("variants", str(len(summary.rows)), ""), ("seeds", str(len(summary.seeds)), "each variant")]
    if summary.metrics:
        metric = summary.metrics[0]
        best = next((row for row in summary.rows if row.variant == summary.best(metric)), None)
        if best is not None:
            facts.append((f"best {display_of(metric).title}", best.label, shown(metric, best.metrics[metric].mean)))
    return facts


def _table(summary: AblationSummary) -> Section:
    head, rows = cells(summary)
    note = f"{_BUDGETS[summary.budget]} Metrics of the test split" + (
        f": mean ± standard deviation of {len(summary.seeds)} seeds." if len(summary.seeds) > 1 else " of one seed."
    )
    return Section("Results", table(head[0], head[1:], [(row[0], row[1:]) for row in rows], "Results"), note)


def _differences(summary: AblationSummary) -> Section | None:
    """The difference of each metric from the baseline, with the intervals over seeds and of the bootstrap."""
    metrics = [name for name in summary.metrics if not display_of(name).part]
    others = [row for row in summary.rows if row.variant != summary.baseline and row.differences]
    if not others:
        return None
    baseline = next(row.label for row in summary.rows if row.variant == summary.baseline)
    rows = [(row.label, [_difference(row, metric) for metric in metrics]) for row in others]
    note = f"Each variant minus “{baseline}”, with the same seeds."
    if any(row.intervals for row in others):
        note += (
            " In parentheses: the 95 % interval of the mean over seeds (Student's t on the paired differences); one that "
            "contains 0 is no evidence of an effect."
        )
    if any(row.bootstrap for row in others):
        note += (
            f" In brackets: 95 % interval and p of a paired bootstrap over {SAMPLES:,} resampled test sets, which tells "
            "how far the difference depends on the test examples, not on the seeds."
        )
    return Section(
        "Differences", table("variant", [display_of(name).title for name in metrics], rows, "Differences"), note
    )


def _difference(row: VariantRow, metric: str) -> str:
    if metric not in row.differences:
        return "–"
    text = signed(metric, row.differences[metric])
    if metric in row.intervals:
        low, high = row.intervals[metric]
        text += f" ({signed(metric, low)} to {signed(metric, high)})"
    if metric not in row.bootstrap:
        return text
    one = row.bootstrap[metric]
    return f"{text} [{signed(metric, one.low)}, {signed(metric, one.high)}; p = {one.p:.3f}]"


def _measured_curves(ablation: Ablation, summary: AblationSummary) -> Section | None:
    if ablation.measure is None:
        return None
    measure, drawn = ablation.measure, [row for row in summary.rows if row.curve]
    series = [Series(row.label, row.curve, dots=True) for row in drawn]
    charts = [
        line_chart(measure.title, part, x_label=measure.x, width=760, height=380, log_x=measure.doubling)
        for part in _parts(series)
    ]
    points = sorted({x for row in drawn for x, _ in row.curve})
    rows = [
        (row.label, [readable(values[x], 4) if x in values else "–" for x in points])
        for row in drawn
        for values in [dict(row.curve)]
    ]
    numbers = table(measure.x, [readable(x, 4) for x in points], rows, measure.title)
    note = f"{measure.y} against {measure.x}, mean over seeds"
    return Section(measure.title, tag("div", *charts, numbers), note) if drawn else None


def _progress(summary: AblationSummary) -> Section | None:
    """The validation metrics during training."""
    names = dict.fromkeys(name for row in summary.rows for name in row.validation)
    charts: list[Markup] = []
    for name in names:
        if display_of(name).part or display_of(name).higher_is_better is None:
            continue
        series = [
            Series(row.label, [(x, scaled(name, y)) for x, y in row.validation[name]], dots=True)
            for row in summary.rows
            if len(row.validation.get(name, ())) > 1
        ]
        charts += [line_chart(display_of(name).title, part) for part in _parts(series)]
    drawn = [chart for chart in charts if chart]
    note = "Metrics of the validation split during training, mean over seeds"
    return Section("Learning", tag("div", *drawn, class_="charts"), note) if drawn else None


def _parts(series: list[Series]) -> list[list[Series]]:
    """At most eight lines for each chart, the first of all (the baseline, if it is first) in every chart."""
    if len(series) <= _LINES:
        return [series]
    first, rest = series[0], series[1:]
    return [[first, *rest[i : i + _LINES - 1]] for i in range(0, len(rest), _LINES - 1)]


def _costs(summary: AblationSummary) -> Section:
    head = ["parameters", "FLOPs of a step", "steps", "predicted seconds", "measured seconds", "tokens/s"]
    rows = []
    for row in summary.rows:
        numbers = [row.steps, row.seconds, row.speed]
        steps, seconds, speed = ("–" if one is None else readable(one.mean) for one in numbers)
        predicted = "–" if row.forecast.seconds is None else readable(row.forecast.seconds)
        costs = [f"{row.forecast.parameters:,}", f"{row.forecast.flops_per_step:.2e}", steps, predicted, seconds, speed]
        rows.append((row.label, costs))
    note = "Of one run. Predicted from FLOPs, for training alone; measured with evaluations, mean over seeds."
    return Section("Costs", table("variant", head, rows, "Costs"), note)


def _variants(ablation: Ablation, summary: AblationSummary, results: Mapping[tuple[str, int], RunResult]) -> Section:
    items = []
    for row in summary.rows:
        links = [
            tag("a", f"seed {seed}", href=f"{row.variant}/seed-{seed}/{REPORT}")
            for seed in ablation.seeds
            if (row.variant, seed) in results and results[row.variant, seed].status == "finished"
        ]
        words = [f"seed {seed}: {results[row.variant, seed].message}" for seed in row.diverged]
        settings = tag("code", " ".join(row.settings)) if row.settings else "the recipe as it is"
        parts = [tag("strong", row.label), " · ", settings]
        for part in (*links, *words):
            parts += [" · ", part]
        items.append(tag("li", *parts))
    return Section("Runs", tag("ul", join(*items)))


def _files() -> Section:
    return Section("The table as a file", file_list(FILES))
