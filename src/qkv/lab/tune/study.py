"""Train the trials of a tuning, one after another or several at once, and write its report and its tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from ...core import several
from ...core.atomic import drop_old
from ...core.device import choose
from ...core.spec import counted
from ...io.directories import layout
from ...runs.compare.study_directory import begun, check_contents, data_of, needs_resume, saved_study
from ..studies.data import check_data
from ..studies.processes import do_all
from .live import TuningProgress
from .page import write_page
from .storage import DATABASE, open_study, optuna
from .summary import FILES, TrialRow, TuningSummary, settings_of, summarize, trial_folder, write_tables
from .trial import TrialJob, TrialResult, train_trial
from .tuning import Tuning

SETTINGS = "tuning.yaml"
_RESULT = "qkv"  # the attribute of a trial that holds its result


@dataclass(frozen=True)
class Tuned:
    """The result of `tune`. `report` is None if it was interrupted; `summary` covers the trials that are done."""

    folder: Path
    summary: TuningSummary
    report: Path | None = None


def tune(
    tuning: Tuning,
    out: Path | str,
    *,
    recipe: str = "",
    settings: Sequence[str] = (),
    resume: bool = False,
    overwrite: bool = False,
    jobs: int = 1,
    limit: float | None = None,
    device: str = "auto",
    console: Console | None = None,
) -> Tuned:
    """Train the trials of a tuning below `out`, and write `report.html`, `trials.csv` and `trials.json` there.

    recipe, settings: as on the command line, for the command that trains the best settings.
    resume:    continue an interrupted tuning, or one that is done with more trials.
    overwrite: replace the tuning in `out`, which is kept as `.old-NAME` until the new one is finished.
    jobs:      trials that are trained at once, each in a separate process with its share of the threads.
    limit:     seconds after which no trial begins.

    Raises ValueError if Optuna or data are missing, if `out` can't be used, or if no trial could be trained.
    """
    several.instance(tuning, Tuning, "tuning", "Tuning.load")
    several.flags(resume=resume, overwrite=overwrite)
    several.whole_numbers(1, jobs=jobs)
    several.numbers(0, limit=limit)
    settings, recipe = several.texts(settings, "settings"), several.text(recipe, "recipe")
    console, out, _ = console or Console(quiet=True), several.path(out, "out"), choose(device)
    optuna()
    _admit(tuning, out, resume, overwrite)
    data: dict[str, str] = {}
    if not any(one.key.split(".")[0] == "data" for one in tuning.space):
        check_data({tuning.name: tuning.base})
        data = data_of({tuning.name: tuning.base})
    with begun(out, SETTINGS, tuning.to_yaml(), console, overwrite, data):
        return _run(tuning, out, recipe or tuning.name, settings, jobs, limit, device, console)


def _run(
    tuning: Tuning,
    out: Path,
    recipe: str,
    settings: Sequence[str],
    jobs: int,
    limit: float | None,
    device: str,
    console: Console,
) -> Tuned:
    """Train the trials that are left, and write the tables and, if all are done, the report."""
    base = tuning.base
    study = open_study(out / DATABASE, base, tuning.pruner, tuning.sampler)
    results = {
        trial.number: TrialResult(**trial.user_attrs[_RESULT]) for trial in study.trials if trial.state.is_finished()
    }
    progress = TuningProgress(base.training.metric, base.training.mode, tuning.trials, console)
    progress.rows = [TrialRow(n, settings_of(tuning, study, n), one) for n, one in results.items()]
    text = (
        f"{counted(tuning.trials, 'trial')}, {max(0, tuning.trials - len(results))} left; the study is {out / DATABASE}"
    )
    console.print(text, highlight=False, soft_wrap=True)
    queue = _Queue(tuning, study, out, device, results, None if limit is None else time.monotonic() + limit)
    complete = _train(queue, jobs, progress)
    summary = summarize(tuning, study, results, out, recipe, settings)
    if complete and results and summary.count("failed") == len(results):
        raise ValueError(f"no trial could be trained; the first: {next(iter(results.values())).message}")
    write_tables(summary, out)
    page = write_page(tuning, summary, out) if complete else None
    if complete:
        drop_old(out)
    return Tuned(out, summary, page)


@dataclass
class _Queue:
    """Asks Optuna for the remaining trials, interrupted ones first."""

    tuning: Tuning
    study: Any
    out: Path
    device: str
    results: dict[int, TrialResult]
    until: float | None

    def __iter__(self) -> Iterator[tuple[int, TrialJob]]:
        states = optuna().trial.TrialState
        begun = [trial.number for trial in self.study.trials if trial.state == states.RUNNING]
        asked = len(self.results) + len(begun)
        for number in begun:
            self._suggest(number)
            yield from self._job(number)
        while asked < self.tuning.trials and (self.until is None or time.monotonic() < self.until):
            trial = self.study.ask()
            for one in self.tuning.space:
                one.suggest(trial)
            asked += 1
            yield from self._job(trial.number)

    def _suggest(self, number: int) -> None:
        """Complete the settings of a trial that was interrupted while they were drawn."""
        trial = optuna().trial.Trial(self.study, self.study.trials[number]._trial_id)
        for one in self.tuning.space:
            one.suggest(trial)

    def settings(self, number: int) -> dict[str, str]:
        return settings_of(self.tuning, self.study, number)

    def _job(self, number: int) -> Iterator[tuple[int, TrialJob]]:
        chosen = [f"{key}={value}" for key, value in self.settings(number).items()]
        recipe, folder = "", trial_folder(self.out, number)
        try:
            recipe = self.tuning.trial(number, chosen).to_yaml()
        except ValueError as error:
            self.tell(number, TrialResult("failed", message=str(error)))
            return
        yield number, TrialJob(self.out / DATABASE, number, recipe, folder, self.device, self.tuning.pruner)

    def tell(self, number: int, result: TrialResult) -> None:
        """Keep the result of a trial, and tell it to Optuna. A divergence counts as pruned: its settings are avoided."""
        states = optuna().trial.TrialState
        trial = optuna().trial.Trial(self.study, self.study.trials[number]._trial_id)
        trial.set_user_attr(_RESULT, asdict(result))
        if result.status == "finished":
            self.study.tell(number, result.value)
        else:
            self.study.tell(number, state=states.FAIL if result.status == "failed" else states.PRUNED)
        self.results[number] = result


def _train(queue: _Queue, jobs: int, progress: TuningProgress) -> bool:
    """Train the trials that are left. Returns whether none was interrupted."""
    known = set(queue.results)

    def begin(number: int, job: TrialJob) -> None:
        progress.begin(number, queue.settings(number))

    def note() -> None:
        for number in sorted(set(queue.results) - known):
            known.add(number)
            progress.done(TrialRow(number, queue.settings(number), queue.results[number]))

    with progress:
        for number, end in do_all(iter(queue), train_trial, begin, jobs):
            result = end()
            if result is None:
                return False
            queue.tell(number, result)
            note()
        note()
    return True


def _admit(tuning: Tuning, out: Path, resume: bool, overwrite: bool) -> None:
    """Check that `out` is free, or can be resumed or overwritten. Raises ValueError if it can't be used."""
    saved = saved_study(out, SETTINGS, "a tuning")
    if saved is None:
        return
    if overwrite:
        files = (layout.REPORT, DATABASE, f"{DATABASE}-*", *FILES)
        check_contents(out, files, SETTINGS, "a tuning", out.glob("trial-[0-9]*"))
        return
    if not resume:
        raise needs_resume(out, "a tuning")
    old = Tuning.from_dict(saved)
    if (old.recipe, old.space) != (tuning.recipe, tuning.space):
        raise ValueError(
            f"the tuning in {out} has another recipe or space; resume it with its own, or replace it with --overwrite"
        )
