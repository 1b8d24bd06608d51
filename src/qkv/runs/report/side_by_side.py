"""One page that compares several runs: settings that differ, metrics, curves, and outputs for the same inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from markupsafe import Markup

from ...core.atomic import real
from ...core.metrics.display import display_of, qualities
from ...core.spec import counted
from ...io.directories.layout import write_text
from ...look.chart import Series, line_chart
from ...look.formatting import scaled, shown
from ...look.html import render
from ...look.svg import join, tag
from ...look.training_history import Table
from .report import metrics_of
from .story import Section, Story
from .table import table

_SHOWN = 6  # inputs whose outputs are compared
_NOT_COMPARED = ("name", "description")
_MOST_SETTINGS = 10  # differing settings that are all shown; of more, only the important ones
_IMPORTANT = (
    "data.kind",
    "task.kind",
    "model.directory",
    "model.preset",
    "model.d_model",
    "model.n_layers",
    "model.n_heads",
    "tokenizer.kind",
    "tokenizer.vocab_size",
    "adapter.kind",
    "objective.kind",
    "training.optimizer.kind",
    "training.optimizer.lr",
    "training.max_steps",
    "training.max_epochs",
    "batching.tokens",
    "seed",
)


def write_side_by_side(run_dirs: Sequence[Path], out: Path) -> None:
    """Write a page on several runs. Raises ValueError if a file of a run is malformed."""
    stories = {name: Story.read(run_dir) for name, run_dir in _named(run_dirs).items()}
    made = (_metrics(stories), _settings(stories), _curves(stories), _samples(stories))
    sections = [section for section in made if section is not None]
    unfinished = " ".join(f"{name}: {story.unfinished}" for name, story in stories.items() if story.unfinished)
    page = render(
        "report.html",
        eyebrow="comparison",
        title=" · ".join(stories),
        lead="",
        warning=unfinished,
        facts=[],
        sections=sections,
    )
    write_text(out, page)


def _named(run_dirs: Sequence[Path]) -> dict[str, Path]:
    """Different directories by the last parts of their paths that tell them apart: `a` and `b`, or `x/a` and `y/a`."""
    paths = {real(run_dir): run_dir for run_dir in run_dirs}
    for count in range(1, 1 + max(len(path.parts) for path in paths)):
        named = {PurePath(*path.parts[-count:]).as_posix(): run_dir for path, run_dir in paths.items()}
        if len(named) == len(paths):
            break
    return named


def _metrics(stories: Mapping[str, Story]) -> Section | None:
    metrics = {name: metrics_of(story) for name, story in stories.items()}
    keys = dict.fromkeys(key for values in metrics.values() for key in values)
    rows = [
        (display_of(key).title, [shown(key, values[key]) if key in values else "–" for values in metrics.values()])
        for key in keys
    ]
    return Section("Results", table("metric", list(stories), rows, "Results")) if rows else None


def _settings(stories: Mapping[str, Story]) -> Section | None:
    """The settings that differ between the recipes. Of many, the important ones come first and the others are folded."""
    flat = [dict(_flat(story.recipe)) for story in stories.values()]
    keys = dict.fromkeys(key for settings in flat for key in settings if key not in _NOT_COMPARED)
    values = {key: [settings.get(key, "–") for settings in flat] for key in keys}
    differing = [key for key in keys if len(set(values[key])) > 1]
    if not differing:
        return Section("Settings that differ", Markup(""), "All settings are the same.")
    important = [key for key in _IMPORTANT if key in differing]
    if len(differing) <= _MOST_SETTINGS or not important:
        important = differing
    rest = [key for key in differing if key not in important]
    shown, folded = (
        table("setting", list(stories), [(key, values[key]) for key in chosen], label)
        for chosen, label in ((important, "Settings"), (rest, "More settings"))
    )
    if not rest:
        return Section("Settings that differ", shown)
    summary = tag("summary", f"{counted(len(rest), 'more setting')} that {'differs' if len(rest) == 1 else 'differ'}")
    return Section("Settings that differ", join(shown, tag("details", summary, folded, class_="folded")))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(dotted path, value) of each setting."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def _curves(stories: Mapping[str, Story]) -> Section | None:
    """Training loss, validation loss and each quality, with one line for each run."""
    kinds: list[tuple[str, Table, str]] = [("Training loss", "train", "nll"), ("Validation loss", "eval", "loss")]
    kinds += [(display_of(key).title, "eval", key) for key in qualities()]
    charts = []
    for title, kind, key in kinds:
        lines = [
            Series(name, [(x, scaled(key, y)) for x, y in story.history.series(kind, key)], dots=kind == "eval")
            for name, story in stories.items()
        ]
        charts.append(line_chart(title, lines))
    drawn = [chart for chart in charts if chart]
    return Section("Learning", tag("div", *drawn, class_="charts")) if drawn else None


def _samples(stories: Mapping[str, Story]) -> Section | None:
    """What each run put out for the inputs that all of them have among their samples."""
    outputs = [{str(sample.get("source", "")): sample for sample in story.samples} for story in stories.values()]
    shared = [source for source in outputs[0] if source and all(source in of_run for of_run in outputs)][:_SHOWN]
    rows = [
        (source, [str(outputs[0][source].get("target") or "–"), *(str(of_run[source]["output"]) for of_run in outputs)])
        for source in shared
    ]
    return Section("Samples", table("input", ["truth", *stories], rows, "Samples")) if rows else None
