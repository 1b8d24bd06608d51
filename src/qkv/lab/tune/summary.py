"""Summarize a tuning: every trial, the best one with its settings as a command, and the importance of each setting."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...data.files.csv_dialect import written
from ...io.directories.layout import EVALUATION, read_json, write_json, write_text
from .storage import optuna
from .trial import TrialResult
from .tuning import Tuning

if TYPE_CHECKING:
    from optuna import Study

FILES = ("trials.csv", "trials.json")
_FEWEST = 4  # finished trials from which importance is estimated


@dataclass(frozen=True)
class TrialRow:
    """A trial: its number, its settings by key, and its result."""

    number: int
    settings: dict[str, str]
    result: TrialResult


@dataclass(frozen=True)
class TuningSummary:
    """metric, mode: of the validation split, by which trials are compared.

    importance: by key, the share of the variance of the metric that it explains (fANOVA); empty with too few trials.
    best:       the number of the best trial that finished; None if none did.
    test:       metrics of the best trial on the test split.
    command:    trains the best settings again.
    """

    name: str
    metric: str
    mode: str
    trials: tuple[TrialRow, ...]
    importance: dict[str, float]
    best: int | None
    test: dict[str, float]
    command: str

    @property
    def best_row(self) -> TrialRow | None:
        return next((row for row in self.trials if row.number == self.best), None)

    def count(self, status: str) -> int:
        return sum(row.result.status == status for row in self.trials)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarize(
    tuning: Tuning, study: Study, results: Mapping[int, TrialResult], out: Path, recipe: str, settings: Sequence[str]
) -> TuningSummary:
    """Summarize the trials that are done. `recipe` and `settings` come from the command line."""
    base = tuning.base
    rows = tuple(TrialRow(n, settings_of(tuning, study, n), results[n]) for n in sorted(results))
    best = best_of(rows, base.training.mode)
    metrics: dict[str, float] = {}
    command = ""
    if best is not None:
        path = trial_folder(out, best.number) / EVALUATION
        found = read_json(path)["metrics"] if path.is_file() else {}
        metrics = {name: float(value) for name, value in found.items() if value is not None}
        chosen = [f"{key}={value}" for key, value in best.settings.items()]
        tuned = [f".{key}" for key in best.settings]
        fixed = [text for text in settings if not any(key.endswith(f".{text.partition('=')[0]}") for key in tuned)]
        command = shlex.join(["qkv", "train", recipe, *fixed, *chosen, "--out", f"runs/{tuning.name}-best"])
    return TuningSummary(
        tuning.name,
        base.training.metric,
        base.training.mode,
        rows,
        _importance(study, rows),
        None if best is None else best.number,
        metrics,
        command,
    )


def settings_of(tuning: Tuning, study: Study, number: int) -> dict[str, str]:
    """The settings of a trial by key."""
    params = study.trials[number].params
    return {one.key: one.text(params[one.key]) for one in tuning.space if one.key in params}


def best_of(rows: Sequence[TrialRow], mode: str) -> TrialRow | None:
    """The finished trial with the best value."""
    values = {row.number: row.result.value for row in rows if row.result.status == "finished"}
    known = {number: value for number, value in values.items() if value is not None}
    if not known:
        return None
    best = (min if mode == "min" else max)(known, key=known.__getitem__)
    return next(row for row in rows if row.number == best)


def trial_folder(out: Path, number: int) -> Path:
    return out / f"trial-{number:03d}"


def write_tables(summary: TuningSummary, out: Path) -> None:
    """Write `trials.csv` and `trials.json`."""
    keys = list(dict.fromkeys(key for row in summary.trials for key in row.settings))
    lines: list[list[object]] = [["trial", "status", summary.metric, *keys, "steps", "seconds"]]
    for row in summary.trials:
        one = row.result
        values = [row.settings.get(key) for key in keys]
        lines.append([row.number, one.status, one.value, *values, one.steps, one.seconds])
    write_text(out / FILES[0], written(lines))
    write_json(out / FILES[1], summary.to_dict())


def _importance(study: Any, rows: Sequence[TrialRow]) -> dict[str, float]:
    if sum(row.result.status == "finished" for row in rows) < _FEWEST:
        return {}
    library = optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            evaluator = library.importance.FanovaImportanceEvaluator(seed=0)
            found = library.importance.get_param_importances(study, evaluator=evaluator)
        except (ValueError, RuntimeError):  # all values are the same
            return {}
    return {key: float(value) for key, value in found.items()}
