"""Run a scaling study: train its ladder, fit the laws, and write `points.csv`, `scaling.json` and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ...core import several, yamls
from ...core.atomic import drop_old
from ...core.device import choose
from ...core.optional_libraries import need
from ...core.spec import counted
from ...data.files.csv_dialect import written
from ...io.directories import layout
from ...nn.kernels.threads import set_threads
from ...runs.compare.study_directory import begun, check_contents, data_of, needs_resume, saved_study
from ...runs.train.prepare import tell
from ...training.logging.progress_bar import span
from ..laws.chinchilla import check
from ..laws.laws import Laws, fit_laws
from ..laws.points import Points
from .ladder import Rung, ladder, predicted_seconds, total_seconds
from .page import HeldOut, PointsSource, write_page
from .progress import shown, table
from .runs import Outcome, run_all
from .study import ScalingStudy

SETTINGS, RUNS, POINTS, RESULTS = "scaling.yaml", "runs.json", "points.csv", "scaling.json"
BOOTSTRAP = 200


@dataclass(frozen=True)
class Scaled:
    """The result of `scale`. `laws` and `report` are None if it was interrupted or only planned."""

    folder: Path
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    laws: Laws | None = None
    held_out: tuple[HeldOut, ...] = ()
    report: Path | None = None


def scale(
    study: ScalingStudy,
    out: Path | str,
    *,
    jobs: int | None = None,
    seconds: float | None = None,
    plan: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    bootstrap: int = BOOTSTRAP,
    console: Console | None = None,
) -> Scaled:
    """Train the ladder of a study, each run in its own folder below `out`, and fit the scaling laws.

    jobs:      runs at a time, each with its share of the threads; by default one per thread on a CPU, else 1.
    seconds:   the longest time that the ladder may take by prediction.
    plan:      print the ladder and its predicted time, and train nothing.
    resume:    continue an interrupted study; finished and diverged runs are not trained again.
    overwrite: replace the study in `out`, which is kept as `.old-NAME` until the new one is finished.

    Raises ValueError, before anything is trained, if the ladder is not valid, would take longer than `seconds`, or gives too
    few points for a fit, or if `out` holds something else.
    """
    several.instance(study, ScalingStudy, "study", "Study.load")
    several.flags(plan=plan, resume=resume, overwrite=overwrite)
    several.whole_numbers(1, jobs=jobs)
    several.whole_numbers(0, bootstrap=bootstrap)
    several.numbers(0, seconds=seconds)
    console, out = console or Console(quiet=True), several.path(out, "out")
    if not plan:
        need("fitting the scaling laws", "scipy")
    where = choose(device)
    jobs = jobs or (torch.get_num_threads() if where.type == "cpu" else 1)
    rungs = ladder(study)
    fitted = [rung for rung in rungs if not _is_held_out(rung, rungs, study)]
    _check_counts(fitted)
    if not plan:
        _admit(study, out, resume, overwrite)
    outcomes = _outcomes(out) if resume else {}
    left = [rung for rung in rungs if rung.name not in outcomes]
    _predict(left, where, jobs, seconds, console)
    if plan:
        console.print(table(rungs, {}))
        return Scaled(out)
    data = data_of({study.name: rungs[0].recipe})
    with begun(out, SETTINGS, study.to_yaml(), console, overwrite, data):
        complete = _train(rungs, left, outcomes, out, jobs, device, console)
    if not complete:
        return Scaled(out, outcomes)
    tell(console, "Fitting the scaling laws …")
    return _finish(study, out, rungs, outcomes, bootstrap)


def _train(
    rungs: Sequence[Rung],
    left: Sequence[Rung],
    outcomes: dict[str, Outcome],
    out: Path,
    jobs: int,
    device: str,
    console: Console,
) -> bool:
    """Train the runs that are left and record their outcomes. Returns whether all are done."""

    def record(rung: Rung, outcome: Outcome) -> None:
        outcomes[rung.name] = outcome
        layout.write_json(out / RUNS, {name: one.to_dict() for name, one in outcomes.items()})
        if not console.is_terminal:
            loss = "diverged" if outcome.diverged else f"loss {outcome.loss:.4f}"
            tell(console, f"{rung.name}: {loss} ({len(outcomes)} of {len(rungs)})")

    with shown(rungs, outcomes, out, console):
        return run_all(left, out, device, jobs, record)


def _finish(
    study: ScalingStudy, out: Path, rungs: Sequence[Rung], outcomes: dict[str, Outcome], bootstrap: int
) -> Scaled:
    """Fit the laws and write the results."""
    layout.write_text(out / POINTS, _table(study, rungs, outcomes))
    trained = [rung for rung in rungs if outcomes[rung.name].loss is not None]
    fitted = [rung for rung in trained if not _is_held_out(rung, rungs, study)]
    laws = fit_laws(_points(fitted, outcomes), study.scaling.budgets, bootstrap)
    held_out = tuple(
        HeldOut(rung.name, rung.parameters, rung.tokens, rung.flops, loss, laws.predict(rung.parameters, rung.tokens))
        for rung in trained
        if rung not in fitted and (loss := outcomes[rung.name].loss) is not None
    )
    runs = [{**_row(study, rung, rungs), **outcomes[rung.name].to_dict()} for rung in rungs]
    results = {"name": study.name, "rate": study.scaling.rate, "runs": runs, "laws": laws.to_dict()}
    layout.write_json(out / RESULTS, {**results, "held_out": [one.to_dict() for one in held_out]})
    source = PointsSource(
        study.name,
        str(study.recipe.get("description") or ""),
        f"{counted(len(rungs), 'run')}, trained for this study; learning rate {_rule(study)}.",
        [(rung.name, rung.lr, rung.steps, outcomes[rung.name]) for rung in rungs],
    )
    page = write_page(laws, out / layout.REPORT, source, held_out)
    drop_old(out)
    return Scaled(out, outcomes, laws, held_out, page)


def _rule(study: ScalingStudy) -> str:
    ladder = study.scaling
    return "the same for all sizes" if not ladder.exponent else f"∝ width^−{ladder.exponent:g}"


def _is_held_out(rung: Rung, rungs: Sequence[Rung], study: ScalingStudy) -> bool:
    largest = max(rungs, key=lambda rung: rung.parameters).size
    return study.scaling.hold_out == "largest" and rung.size == largest


def _points(rungs: Sequence[Rung], outcomes: Mapping[str, Outcome]) -> Points:
    return Points.of(
        {
            "parameters": float(rung.parameters),
            "tokens": float(rung.tokens),
            "flops": rung.flops,
            "loss": outcomes[rung.name].loss or 0.0,
        }
        for rung in rungs
    )


def _check_counts(fitted: Sequence[Rung]) -> None:
    """Raise ValueError before training if the ladder has too few runs for a fit, whatever their losses."""
    check(_points(fitted, {rung.name: Outcome(loss=1.0) for rung in fitted}))


def _predict(rungs: Sequence[Rung], device: torch.device, jobs: int, most: float | None, console: Console) -> None:
    """Say how long the runs will take. Raises ValueError if that is more than `most` seconds."""
    if not rungs:
        return
    tell(console, "Measuring a training step of each size …")
    threads = torch.get_num_threads()
    try:
        set_threads(max(threads // jobs, 1))
        by_name = predicted_seconds(rungs, device)
    finally:
        set_threads(threads)
    total = total_seconds(list(by_name.values()), jobs)
    at_a_time = f", {jobs} at a time" if jobs > 1 else ""
    if most is not None and total > most:
        share = most / total
        raise ValueError(
            f"{counted(len(rungs), 'run')} would take about {span(total)}{at_a_time}, longer than --time {span(most)}; give "
            f"--budgets of about {share:.0%} of these, or fewer of them"
        )
    tell(console, f"{counted(len(rungs), 'run')} will take about {span(total)}{at_a_time}.")


def _admit(study: ScalingStudy, out: Path, resume: bool, overwrite: bool) -> None:
    """Check that `out` is free, or can be resumed or overwritten. Raises ValueError if it can't be used."""
    saved = saved_study(out, SETTINGS, "a scaling study")
    if saved is None:
        return
    if overwrite:
        files = (RUNS, POINTS, RESULTS, layout.REPORT)
        check_contents(out, files, SETTINGS, "a scaling study", out.glob("*-[0-9]*x[0-9]*"))
        return
    if not resume:
        raise needs_resume(out, "a scaling study")
    if saved != yamls.load(study.to_yaml()):
        raise ValueError(
            f"the scaling study in {out} has other settings; resume it with those, or replace it with --overwrite"
        )


def _outcomes(out: Path) -> dict[str, Outcome]:
    """The outcomes that an interrupted study has recorded."""
    path = out / RUNS
    saved: Mapping[str, Any] = layout.read_json(path) if path.is_file() else {}
    return {name: Outcome(**one) for name, one in saved.items()}


def _row(study: ScalingStudy, rung: Rung, rungs: Sequence[Rung]) -> dict[str, Any]:
    return {
        "recipe": study.name,
        "run": rung.name,
        "d_model": rung.size.d_model,
        "n_layers": rung.size.n_layers,
        "parameters": rung.parameters,
        "tokens": rung.tokens,
        "flops": rung.flops,
        "lr": rung.lr,
        "steps": rung.steps,
        "held_out": _is_held_out(rung, rungs, study),
    }


def _table(study: ScalingStudy, rungs: Sequence[Rung], outcomes: Mapping[str, Outcome]) -> str:
    """`points.csv`: a row for each run; `loss` is empty if it diverged."""
    rows = [{**_row(study, rung, rungs), "loss": outcomes[rung.name].loss} for rung in rungs]
    return written([list(rows[0]), *(list(row.values()) for row in rows)])
