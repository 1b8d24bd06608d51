"""Train all runs of an ablation, one after another or several at once, and write its report and its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ...core import several
from ...core.atomic import drop_old
from ...core.device import choose
from ...core.optional_libraries import need
from ...core.spec import counted
from ...io.directories import layout
from ...io.directories.layout import RunState
from ...look.output_diff import duration
from ...runs.compare.study_directory import begun, check_contents, data_of, needs_resume, saved_study
from ...runs.recipes.recipe import Recipe
from ..studies.data import check_data
from ..studies.processes import do_all
from .ablation import Ablation
from .budget import equalized
from .forecast import CostForecast, costs_of, forecast, slowdown_of
from .live import AblationProgress
from .page import write_page
from .single_run import RESULT, RunResult, StudyRun, train_run
from .summary import AblationSummary, summarize
from .tables import FILES, write_tables

SETTINGS = "ablation.yaml"

Results = dict[tuple[str, int], RunResult]
"""By variant and seed."""


@dataclass(frozen=True)
class AblationStudy:
    """The result of `run_ablation`. `report` is None if it was interrupted; `summary` covers the runs that are done."""

    folder: Path
    summary: AblationSummary
    report: Path | None = None


@dataclass(frozen=True)
class BudgetedVariants:
    """The recipe of each variant at its budget, and what one run of it costs."""

    recipes: dict[str, Recipe]
    forecasts: dict[str, CostForecast]
    measured: bool

    def seconds(self, seeds: int) -> float | None:
        """Predicted seconds of training of all runs, one after another; None if they can't be predicted."""
        each = [one.seconds for one in self.forecasts.values()]
        return None if None in each else seeds * sum(seconds for seconds in each if seconds is not None)


def run_ablation(
    ablation: Ablation,
    out: Path | str,
    *,
    resume: bool = False,
    overwrite: bool = False,
    jobs: int = 1,
    limit: float | None = None,
    device: str = "auto",
    console: Console | None = None,
) -> AblationStudy:
    """Train every variant with every seed below `out`, and write `report.html` and the tables there.

    resume:    continue an interrupted ablation, or add variants and seeds to one; runs that are done are not repeated.
    overwrite: replace the ablation in `out`, which is kept as `.old-NAME` until the new one is finished.
    jobs:      runs that are trained at once, each in a separate process with its share of the threads.
    limit:     seconds that all runs may take, by prediction.

    Raises ValueError, before anything is written, if data are missing, if `out` can't be used, or if the prediction exceeds
    `limit`.
    """
    several.instance(ablation, Ablation, "ablation", "Ablation.load")
    several.flags(resume=resume, overwrite=overwrite)
    several.whole_numbers(1, jobs=jobs)
    several.numbers(0, limit=limit)
    console, out, _ = console or Console(quiet=True), several.path(out, "out"), choose(device)
    if len(ablation.seeds) > 1:
        need("the interval of an ablation with several seeds", "scipy")
    _admit(ablation, out, resume, overwrite)
    recipes = {variant.label: ablation.variant(name) for name, variant in ablation.variants.items()}
    check_data(recipes)
    plan = make_plan(ablation, device, measure=limit is not None)
    _check_time(ablation, plan, limit, jobs)
    with begun(out, SETTINGS, ablation.to_yaml(), console, overwrite, data_of(recipes)):
        return _run(ablation, plan, out, jobs, device, console)


def _run(
    ablation: Ablation, plan: BudgetedVariants, out: Path, jobs: int, device: str, console: Console
) -> AblationStudy:
    """Train the runs that are left, and write the tables and, if all are done, the report."""
    results: Results = {}
    todo: dict[tuple[str, int], StudyRun] = {}
    for run in ablation.runs:
        folder = _folder(out, *run)
        done = RunResult.read(folder)
        if done is not None:
            results[run] = done
        else:
            todo[run] = _job(ablation, plan, run, folder, device)
    _announce(ablation, plan, len(todo), jobs, console)
    complete = _train_all(ablation, todo, results, jobs, console)
    summary = summarize(ablation, plan.forecasts, results)
    write_tables(summary, out)
    page = write_page(ablation, summary, results, out) if complete else None
    if complete:
        drop_old(out)
    return AblationStudy(out, summary, page)


def make_plan(ablation: Ablation, device: str, measure: bool = False) -> BudgetedVariants:
    """Give all variants equal budgets and predict what they cost. `measure` times steps of the baseline on this machine."""
    where = choose(device)
    recipes = {name: ablation.variant(name) for name in ablation.variants}
    costs = costs_of(recipes, where)
    base, base_costs = recipes[ablation.baseline], costs[ablation.baseline]
    slowdown = slowdown_of(base_costs, where) if measure else 1.0
    equal = {
        name: equalized(recipe, ablation.budget, base, costs[name], base_costs) for name, recipe in recipes.items()
    }
    return BudgetedVariants(equal, {name: forecast(equal[name], costs[name], slowdown) for name in equal}, measure)


def _check_time(ablation: Ablation, plan: BudgetedVariants, limit: float | None, jobs: int) -> None:
    if limit is None:
        return
    seconds = plan.seconds(len(ablation.seeds))
    if seconds is None:
        raise ValueError("--time needs runs whose length is known; give training.max_steps=N")
    if seconds / jobs > limit:
        runs = counted(len(ablation.runs), "run")
        raise ValueError(
            f"the {runs} would take about {duration(seconds / jobs)} on this machine, more than --time {duration(limit)}; "
            "give fewer values or seeds, --random N, or a smaller training.max_steps"
        )


def _announce(ablation: Ablation, plan: BudgetedVariants, left: int, jobs: int, console: Console) -> None:
    runs = counted(len(ablation.runs), "run")
    parts = [f"{runs}: {counted(len(ablation.variants), 'variant')} × {counted(len(ablation.seeds), 'seed')}"]
    if left < len(ablation.runs):
        parts.append(f"{left} left")
    seconds = plan.seconds(len(ablation.seeds))
    if seconds is not None and left:
        share = seconds * left / len(ablation.runs) / jobs
        how = "measured" if plan.measured else "estimated"
        parts.append(f"about {duration(share)} of training ({how} for this machine)")
    console.print("; ".join(parts), highlight=False, soft_wrap=True)


def _admit(ablation: Ablation, out: Path, resume: bool, overwrite: bool) -> None:
    """Check that `out` is free, or can be resumed or overwritten. Raises ValueError if it can't be used."""
    old = _saved(out)
    if old is None:
        return
    if overwrite:
        files = (layout.REPORT, *FILES)
        check_contents(out, files, SETTINGS, "an ablation", out.glob("*/seed-[0-9]*"))
        return
    if not any(RunState.of(_folder(out, *run)) is not RunState.FREE for run in (*old.runs, *ablation.runs)):
        return
    if not resume:
        raise needs_resume(out, "an ablation")
    if not _comparable(old, ablation):
        raise ValueError(
            f"the ablation in {out} has other settings, and runs of different recipes are not comparable; resume it with "
            "its own settings, or replace it with --overwrite"
        )
    _check_none_lost(old, ablation, out)


def _check_none_lost(old: Ablation, new: Ablation, out: Path) -> None:
    """Raise ValueError if runs that are done would vanish from the tables and the report, which are written anew."""
    kept = set(new.runs)
    lost = [run for run in old.runs if run not in kept and (_folder(out, *run) / RESULT).is_file()]
    if not lost:
        return
    variants = list(dict.fromkeys(old.variants[name].label for name, _ in lost if name not in new.variants))
    seeds = list(dict.fromkeys(str(seed) for _, seed in lost if seed not in new.seeds))
    what = f"variant {variants[0]}" if variants else f"seed {seeds[0]}"
    more = len(variants or seeds) - 1
    others = f" and {more} more" if more else ""
    raise ValueError(
        f"the tables in {out} would lose {counted(len(lost), 'finished run')}, of {what}{others}; give all variants and "
        "seeds of the ablation, old and new, delete the directories of those runs, or choose another directory with --out"
    )


def _comparable(old: Ablation, new: Ablation) -> bool:
    """Whether runs of two ablations belong in one table: only variants and seeds may differ."""
    shared = old.variants.keys() & new.variants.keys()
    if any(old.variants[name].settings != new.variants[name].settings for name in shared):
        return False
    same_budget = old.budget == new.budget and (old.budget in ("steps", "time") or old.baseline == new.baseline)
    return old.recipe == new.recipe and same_budget


def _saved(out: Path) -> Ablation | None:
    """The ablation in `out`, if there is one. Raises ValueError if something else is there."""
    saved = saved_study(out, SETTINGS, "an ablation")
    return None if saved is None else Ablation.from_dict(saved)


def _folder(out: Path, variant: str, seed: int) -> Path:
    return out / variant / f"seed-{seed}"


def _job(ablation: Ablation, plan: BudgetedVariants, run: tuple[str, int], folder: Path, device: str) -> StudyRun:
    variant, seed = run
    recipe = plan.recipes[variant].model_copy(update={"seed": seed})
    measure = None if ablation.measure is None else ablation.measure.to_dict()
    return StudyRun(recipe.to_yaml(), folder, device, measure)


def _train_all(
    ablation: Ablation, todo: Mapping[tuple[str, int], StudyRun], results: Results, jobs: int, console: Console
) -> bool:
    """Train the runs that are left and add their results. Returns whether all are done."""
    progress = AblationProgress(ablation, results, console, jobs)
    queue = iter(todo.items())
    with progress:

        def begin(run: tuple[str, int], job: StudyRun) -> None:
            progress.begin(run, job.folder)

        for run, end in do_all(queue, train_run, begin, min(jobs, max(1, len(todo)))):
            with _naming(run):
                result = end()
            if result is None:
                return False
            results[run] = result
            progress.done(run, result)
    return True


@contextmanager
def _naming(run: tuple[str, int]) -> Iterator[None]:
    """Name the run in the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{run[0]}, seed {run[1]}: {error}") from None
