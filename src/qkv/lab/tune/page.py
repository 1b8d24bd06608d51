"""Write the report of a tuning: the best settings as a command, importance, every trial, and learning curves."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from ...core.metrics.display import display_of
from ...core.spec import counted
from ...io.directories.layout import REPORT
from ...look.chart import Series, line_chart
from ...look.formatting import scaled, shown
from ...look.svg import join, readable, tag
from ...runs.report.story import Section
from ...runs.report.table import table
from ..studies.page import file_list, write_report
from .storage import DATABASE
from .summary import FILES, TrialRow, TuningSummary, trial_folder
from .tuning import Tuning

_LINES = 8  # trials in the chart of learning curves, the best ones


def write_page(tuning: Tuning, summary: TuningSummary, out: Path) -> Path:
    """Write `report.html` and return its path."""
    sections = [
        _best(summary),
        _importance(tuning, summary),
        _progress(summary),
        *_values(tuning, summary),
        _curves(summary),
        _trials(summary, out),
        _files(),
    ]
    return write_report(
        out / REPORT,
        "tuning",
        summary.name,
        sections,
        lead=str(tuning.recipe.get("description") or ""),
        warning=_warning(summary),
        facts=_facts(summary),
    )


def _warning(summary: TuningSummary) -> str:
    if summary.best is None:
        return "No trial finished."
    failed = summary.count("failed")
    return f"{counted(failed, 'trial')} could not be trained; the table of trials says why." if failed else ""


def _facts(summary: TuningSummary) -> list[tuple[str, str, str]]:
    counts = [(name, summary.count(name)) for name in ("finished", "pruned", "diverged")]
    facts = [("trials", str(len(summary.trials)), ", ".join(f"{n} {name}" for name, n in counts if n))]
    best = summary.best_row
    if best is not None and best.result.value is not None:
        title = display_of(summary.metric).title
        facts.append((f"best {title}", shown(summary.metric, best.result.value), f"trial {best.number}, validation"))
    return facts


def _best(summary: TuningSummary) -> Section | None:
    best = summary.best_row
    if best is None:
        return None
    rows = [(key, [value]) for key, value in best.settings.items()]
    parts: list[object] = [table("setting", ["value"], rows, "Best settings"), tag("pre", tag("code", summary.command))]
    if summary.test:
        names = [name for name in summary.test if not display_of(name).part]
        values = [(display_of(name).title, [shown(name, summary.test[name])]) for name in names]
        parts.append(table("test split", ["value"], values, "Test metrics"))
    note = (
        f"Trial {best.number}. The command trains these settings again. Trials are chosen by the validation split; the "
        "test metrics belong to this trial."
    )
    return Section("Best settings", tag("div", *parts), note)


def _importance(tuning: Tuning, summary: TuningSummary) -> Section | None:
    if not summary.importance:
        return None
    ranges = {one.key: str(one) for one in tuning.space}
    rows = [(key, [f"{value:.0%}", _bar(value), ranges.get(key, "")]) for key, value in summary.importance.items()]
    note = (
        "The share of the variance of the metric that each setting explains, within its range (fANOVA; Hutter et al. 2014), "
        f"from {counted(summary.count('finished'), 'finished trial')}; with few trials it is a rough estimate."
    )
    return Section("Importance", table("setting", ["importance", "", "searched"], rows, "Importance"), note)


def _bar(share: float) -> str:
    return "█" * round(12 * share) or "▏"


def _progress(summary: TuningSummary) -> Section | None:
    """The value of each finished trial, and the best so far."""
    done = [row for row in summary.trials if row.result.status == "finished" and row.result.value is not None]
    if len(done) < 2:
        return None
    better = min if summary.mode == "min" else max
    points = [(float(row.number), scaled(summary.metric, row.result.value or 0.0)) for row in done]
    best = [(x, better(y for _, y in points[: i + 1])) for i, (x, _) in enumerate(points)]
    chart = line_chart(
        display_of(summary.metric).title,
        [Series("best so far", best), Series("trial", points, dots=True)],
        width=760,
        x_label="trial",
    )
    return Section("Search", tag("div", chart, class_="charts"), "Finished trials, in the order in which they began")


def _values(tuning: Tuning, summary: TuningSummary) -> list[Section]:
    """The metric against the values of each range."""
    charts: list[Markup] = []
    for one in tuning.space:
        if one.choices:
            continue
        points = [
            (float(row.settings[one.key]), scaled(summary.metric, row.result.value))
            for row in summary.trials
            if row.result.status == "finished" and row.result.value is not None and one.key in row.settings
        ]
        if len(points) > 1:
            title = f"{display_of(summary.metric).title} by {one.key.split('.')[-1]}"
            series = [Series("finished trials", sorted(points), dots=True)]
            charts.append(line_chart(title, series, x_label=one.key, log_x=one.log))
    note = "The metric against each range; other settings differ from trial to trial"
    return [Section("Settings", tag("div", *charts, class_="charts"), note)] if charts else []


def _curves(summary: TuningSummary) -> Section | None:
    sign = 1 if summary.mode == "min" else -1
    rows = sorted(
        (row for row in summary.trials if row.result.value is not None and len(row.result.points) > 1),
        key=lambda row: sign * (row.result.value or 0.0),
    )[:_LINES]
    if not rows:
        return None
    series = [
        Series(f"trial {row.number}", [(x, scaled(summary.metric, y)) for x, y in row.result.points], dots=True)
        for row in rows
    ]
    chart = line_chart(display_of(summary.metric).title, series, width=760)
    return Section("Learning", tag("div", chart, class_="charts"), "Evaluations of the best trials during training")


def _trials(summary: TuningSummary, out: Path) -> Section:
    keys = list(dict.fromkeys(key for row in summary.trials for key in row.settings))
    head = ["result", display_of(summary.metric).title, *(key.split(".")[-1] for key in keys), "steps", "seconds"]
    rows = [(f"trial {row.number}", _cells(row, keys, summary.metric)) for row in summary.trials]
    links = [
        tag("li", tag("a", f"trial {row.number}", href=f"{trial_folder(out, row.number).name}/{REPORT}"))
        for row in summary.trials
        if row.result.status == "finished"
    ]
    failed = [tag("li", f"trial {row.number}: {row.result.message}") for row in summary.trials if row.result.message]
    return Section("Trials", tag("div", table("trial", head, rows, "Trials"), tag("ul", join(*failed, *links))))


def _cells(row: TrialRow, keys: list[str], metric: str) -> list[str]:
    one = row.result
    value = "–" if one.value is None else shown(metric, one.value)
    chosen = [row.settings.get(key, "–") for key in keys]
    return [one.status, value, *chosen, f"{one.steps:,}", readable(one.seconds)]


def _files() -> Section:
    text = tag("p", "Optuna's dashboard shows the study: ", tag("code", f"optuna-dashboard sqlite:///{DATABASE}"))
    return Section("Files", tag("div", file_list((*FILES, DATABASE)), text))
