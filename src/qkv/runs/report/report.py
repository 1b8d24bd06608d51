"""Write `report.html`, the report of a training on one page, without scripts or network access.

The page is a row of sections, each made by a function `(Story) -> Section | None` listed in `SECTIONS`; a run with
other things to show (boxes, spectrograms, forecasts) appends its own function there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ...core.metrics.display import display_of, qualities
from ...core.spec import counted
from ...io.directories.layout import (
    REPORT,
    write_text,
)
from ...look.chart import Series, line_chart
from ...look.formatting import scaled, shown
from ...look.html import render
from ...look.output_diff import duration
from ...look.svg import join, readable, tag
from . import contextual
from .attention import attention
from .confusions import confusions
from .samples import best_and_worst, samples
from .story import Section, Story
from .table import table
from .what_was_trained import what_was_trained


def write_report(run_dir: Path | str, samples: Sequence[Mapping[str, Any]] | None = None) -> Path:
    """Write `report.html` into a run directory, the pictured attention beside it, and return the page's path.

    `samples` are dictionaries with "source", "output" and perhaps "target" and "score"; by default the samples in
    `samples.json`. What a run doesn't have is left out. Raises ValueError when the directory is not there or
    a file in it is malformed.
    """
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise ValueError(f"there is no run directory {run_dir}")
    story = Story.read(run_dir, samples)
    sections = [made for make in SECTIONS if (made := make(story)) is not None]
    page = render(
        "report.html",
        eyebrow="training report",
        title=story.name,
        lead=_lead(story),
        warning=story.unfinished,
        facts=_facts(story),
        sections=sections,
    )
    write_text(run_dir / REPORT, page)
    return run_dir / REPORT


# -- the head of the page ---------------------------------------------------------------------------------------


def _lead(story: Story) -> str:
    """How far it was trained, in one sentence."""
    steps, tokens = (story.history.series("train", key) for key in ("elapsed", "tokens"))
    if not steps:
        return str(story.recipe.get("description") or "")
    seen = f" on {readable(tokens[-1][1])} tokens" if tokens else ""
    return f"Trained for {steps[-1][0]:,.0f} steps{seen}, in {duration(steps[-1][1])}."


def _facts(story: Story) -> list[tuple[str, str, str]]:
    """Tiles: name, value, detail."""
    made, history, machine = [], story.history, story.machine
    metrics = metrics_of(story)
    chosen = (story.recipe.get("training") or {}).get("metric")  # by which the best weights were
    wanted = (*([chosen] if chosen not in (None, "loss") else []), *qualities(), "perplexity")
    headline = next((key for key in wanted if key in metrics), None)
    if headline:
        made.append((display_of(headline).title, shown(headline, metrics[headline]), story.evaluated_on))
    if story.parameters:
        made.append(("Parameters", readable(float(story.parameters)), f"{story.parameters:,}"))
    seconds = history.last("train", "elapsed")
    if seconds is not None:
        made.append(("Training time", duration(seconds), ""))
    speed, mfu = (history.median("train", key) for key in ("tokens_per_s", "mfu"))
    if speed is not None:
        made.append(("Tokens per second", readable(speed), f"median; MFU {mfu:.0%}" if mfu else "median"))
    if machine.get("processor"):
        cores = counted(int(machine["cores"]), "core") if "cores" in machine else ""
        detail = ", ".join(filter(None, (cores, machine.get("gpu"))))
        made.append(("Machine", machine["processor"], detail))
    if machine.get("torch"):
        made.append(("PyTorch", machine["torch"], ""))
    return made


# -- sections ---------------------------------------------------------------------------------------------------


def learning(story: Story) -> Section | None:
    """Loss and quality, large; learning rate, gradient norm and throughput, small.

    A quality that was evaluated only once has no curve, and a chart whose values are all 0 is left out.
    """
    history = story.history
    # Training's "nll" is what evaluation calls its loss: the plain likelihood, without label smoothing.
    losses = [
        Series("train", history.series("train", "nll") or history.series("train", "loss")),
        Series("validation", history.series("eval", "loss"), dots=True),
    ]
    quality = _curves(
        Series(display_of(key).title, [(x, scaled(key, y)) for x, y in history.series("eval", key)], dots=True)
        for key in qualities()
    )
    perplexity = _curves([Series("perplexity", history.series("eval", "perplexity"), dots=True)])
    quality_name = quality[0].name if len(quality) == 1 else "Quality"
    large = [
        line_chart("Loss" if story.task else "Loss (nats per token)", losses),
        line_chart(f"{quality_name} on held-out data", quality, zero=_far_apart(quality))
        or line_chart("Perplexity on held-out data", perplexity),
    ]
    small = [
        line_chart(title, [series], width=300, height=180, zero=True, show=show)
        for title, key, show in (
            ("Learning rate", "lr", readable),
            ("Gradient norm", "grad_norm", readable),
            ("Tokens per second", "tokens_per_s", readable),
            ("Model FLOPs utilization", "mfu", _percent),
        )
        for series in [Series(title, history.series("train", key))]
        if any(_values([series]))
    ]
    if not any([*large, *small]):
        return None
    bad = history.count("bad step")
    note = f"{counted(bad, 'step')} with a loss or gradient that was not finite made no update." if bad else ""
    return Section("Learning", join(_row("charts", large), _row("charts small", small)), note)


def _curves(series: Iterable[Series]) -> list[Series]:
    """Return the lines with at least two points, or none if every value is 0."""
    lines = [line for line in series if len(line.finite()) > 1]
    return lines if any(_values(lines)) else []


def _far_apart(lines: Sequence[Series]) -> bool:
    """Whether the smallest value is less than half of the largest, so an axis from 0 keeps the lines apart."""
    return min(_values(lines), default=0) < 0.5 * max(_values(lines), default=0)


def _values(lines: Sequence[Series]) -> list[float]:
    return [y for line in lines for _, y in line.finite()]


def results(story: Story) -> Section | None:
    """The metrics of the weights delivered, each with the signature of its computation."""
    rows = [(display_of(key).title, shown(key, value), _how(story, key)) for key, value in metrics_of(story).items()]
    if not rows:
        return None
    notes = [f"{story.evaluated_on}.", *(f"{note}." for note in story.evaluation.get("notes") or ())]
    return Section("Results", join(Markup(render("metrics.html", rows=rows)), _baselines(story)), " ".join(notes))


def _baselines(story: Story) -> Markup:
    """A table of the model's metrics above the metrics of simple methods on the same examples."""
    methods, own = story.evaluation.get("baselines") or (), metrics_of(story)
    metrics = [key for key in own if any(key in method["metrics"] for method in methods)]

    def cells(values: Mapping[str, Any]) -> list[str]:
        return [shown(key, _number(values[key])) if key in values else "" for key in metrics]

    rows = [("this model", cells(own)), *((str(method["name"]), cells(method["metrics"])) for method in methods)]
    titles = [display_of(key).title for key in metrics]
    return table("on the same examples", titles, rows, "Simple methods") if methods else Markup("")


def _how(story: Story, key: str) -> str:
    """How a metric was computed, and on how many examples if that is not all of them."""
    how = (story.evaluation.get("signatures") or {}).get(key) or ("" if story.task else display_of(key).about)
    covered = (story.evaluation.get("counts") or {}).get(key)
    return how if covered is None else f"{how}; over {counted(covered, 'example')}".removeprefix("; ")


SECTIONS: list[Callable[[Story], Section | None]] = [
    what_was_trained,
    results,
    learning,
    confusions,
    samples,
    best_and_worst,
    attention,
    contextual.senses,
]


# -- words ------------------------------------------------------------------------------------------------------


def metrics_of(story: Story) -> dict[str, float]:
    """Of the weights delivered if they were evaluated, else of the last evaluation on the way."""
    found = story.evaluation.get("metrics")
    if found:
        return {key: _number(value) for key, value in found.items() if isinstance(value, int | float | None)}
    last = {key: story.history.last("eval", key) for key in story.history.keys("eval") if key != "elapsed"}
    return {key: value for key, value in last.items() if value is not None}


def _number(value: float | None) -> float:
    """A number of `evaluation.json`, where null stands for one that is not finite."""
    return math.nan if value is None else value


def _percent(value: float) -> str:
    return f"{readable(100 * value)}%"


def _row(class_: str, parts: Sequence[Markup]) -> Markup:
    kept = [part for part in parts if part]
    return tag("div", *kept, class_=class_) if kept else Markup("")
