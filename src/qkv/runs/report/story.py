"""Read a run directory for its report: recipe, metrics history, evaluation, samples, start and machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from markupsafe import Markup
from safetensors import SafetensorError, safe_open

from ...core import yamls
from ...io.directories.layout import EVALUATION, EXTREMES, METRICS, RECIPE, SAMPLES, WEIGHTS, read_json, read_text
from ...io.directories.lock import owner_of
from ...look.formatting import taken
from ...look.training_history import History
from ...training.logging.metrics_file import read_metrics
from .. import tasks
from ..recipes.recipe import argument_of
from .start import START, machine_of

_STATES = ("started", "resumed", "interrupted", "ended")  # events that say whether a training is running


@dataclass(frozen=True)
class Section:
    """A titled part of the page; `note` is the line under its title."""

    title: str
    body: Markup
    note: str = ""


@dataclass(frozen=True)
class Story:
    """What a run directory tells.

    recipe:     `recipe.yaml` as data.
    history:    the lines of `metrics.jsonl`.
    evaluation: `evaluation.json`: "metrics", "signatures", "split" and "examples" of the weights delivered.
    samples:    `samples.json`: dictionaries with "source", "output", perhaps "target" and "score".
    machine:    where the run was made: "processor", "cores", "gpu", "torch".
    extremes:   `extremes.json`: the best and the worst examples, and "by" which score; empty for runs without one.
    start:      `start.json`: "date", "device", "examples" (in words) and "command"; empty for runs of older versions.
    """

    run_dir: Path
    recipe: Mapping[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=History)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    samples: Sequence[Mapping[str, Any]] = ()
    extremes: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    start: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, run_dir: Path, samples: Sequence[Mapping[str, Any]] | None = None) -> Story:
        file, metrics = run_dir / RECIPE, run_dir / METRICS
        recipe = yamls.load(read_text(file), name=str(file)) or {} if file.exists() else {}
        tasks.import_one((recipe.get("task") or {}).get("kind"))
        return cls(
            run_dir,
            recipe,
            History.of(read_metrics(metrics)) if metrics.exists() else History(),
            _read_object(run_dir / EVALUATION),
            _read_samples(run_dir / SAMPLES) if samples is None else list(samples),
            _read_extremes(run_dir / EXTREMES),
            {key: str(value) for key, value in machine_of(run_dir).items() if value is not None},
            _read_object(run_dir / START),
        )

    @property
    def name(self) -> str:
        return str(self.recipe.get("name") or self.run_dir.resolve().name)

    @property
    def task(self) -> str | None:
        """The kind of task that the run was taught; None if it only read texts or pairs."""
        return (self.recipe.get("task") or {}).get("kind")

    @property
    def evaluated_on(self) -> str:
        """What the metrics were measured on."""
        split, examples = self.evaluation.get("split"), self.evaluation.get("examples")
        if split:
            return f"{split} split, {taken(self.evaluation)}" if isinstance(examples, int) else f"{split} split"
        return "last evaluation while training"

    @property
    def unfinished(self) -> str:
        """A sentence on why the run has no final evaluation yet; empty for a run that has one, and for one without a log."""
        events = [line for line in self.history.tables.get("event", ()) if line.get("event") in _STATES]
        if self.evaluation or not events:
            return ""
        state, go_on = events[-1]["event"], f"continue it with: qkv train {argument_of(self.run_dir)} --resume"
        if state == "interrupted":
            return f"This training was interrupted after step {events[-1]['step']:,}; {go_on}"
        if state == "ended" and events[-1].get("reason") == "bad steps":
            return "This training was stopped because too many steps in a row made no update."
        if (owner := owner_of(self.run_dir)) is not None:
            return f"This training has not ended yet: {owner} is running it."
        if state == "ended":
            return f"This training ended without an evaluation of its final weights; {go_on}"
        return f"This training has not ended: it was killed or it failed; {go_on}"

    @cached_property
    def parameters(self) -> int | None:
        """Numbers in the weights' file, by its header; tensors that parts of the model share stand there once."""
        try:
            with safe_open(self.run_dir / WEIGHTS, framework="numpy") as weights:
                return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
        except (OSError, SafetensorError):
            return None


def _read_object(path: Path) -> dict[str, Any]:
    found = read_json(path) if path.exists() else {}
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}, not an object")
    return found


def _read_samples(path: Path) -> list[dict[str, Any]]:
    samples = read_json(path) if path.exists() else []
    if not _are_samples(samples):
        raise ValueError(f'{path} is not a list of samples, objects with "source", "output" and perhaps "target"')
    return samples


def _read_extremes(path: Path) -> dict[str, Any]:
    extremes = _read_object(path)
    if extremes and not all(_are_samples(extremes.get(key)) for key in ("best", "worst")):
        raise ValueError(
            f'{path} does not hold "best" and "worst" samples, objects with "source", "output" and "score"'
        )
    return extremes


def _are_samples(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(s, dict) and isinstance(s.get("output"), str) for s in value)
