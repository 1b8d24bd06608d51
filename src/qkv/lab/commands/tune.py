"""`qkv tune`: search the best settings of a recipe over a declared space."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...cli import completion
from ...cli.options import Device, Json
from ...cli.say import console, echo, echo_json
from .studies import Recipe, interrupted, resume_or_overwrite

if TYPE_CHECKING:
    from ..tune.summary import TuningSummary


def tune(
    recipe: Recipe,
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Settings of all trials, such as `training.max_steps=100`.",
            autocompletion=completion.settings,
        ),
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=LOW..HIGH[,log]|KEY=VALUE,…",
            help="A key of the recipe or of its model and the values to search, such as "
            "`training.optimizer.lr=1e-4..1e-2,log`; repeatable. [default: the recipe's `tune`]",
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(metavar="N", min=2, help="Number of trials. [default: the recipe's, or 20]")
    ] = None,
    pruner: Annotated[
        str | None,
        typer.Option(
            metavar="median|hyperband|none", help="How to stop poor trials early. [default: the recipe's, or median]"
        ),
    ] = None,
    sampler: Annotated[
        str | None, typer.Option(metavar="tpe|random", help="How to choose settings. [default: the recipe's, or tpe]")
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Trials to train at once.")] = 1,
    max_time: Annotated[
        str | None, typer.Option("--max-time", metavar="TIME", help="Begin no trial after this time: `30m`, `2h`.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The directory of the tuning. [default: runs/NAME-tuning]")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the tuning in the directory, or add trials to it.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the tuning in the directory.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> int:
    """Search for the best settings of a recipe in a declared space, with Optuna; `qkv ablate` compares given variants.

    Each trial trains the recipe with other settings; poor trials are stopped early by their evaluations on the validation
    split. The directory gets `report.html` with the best settings as a command, the importance of each setting and all
    trials, and `study.db`, which Optuna's dashboard reads.
    """
    resume_or_overwrite(resume, overwrite, "a tuning")
    from ...training.settings import read_seconds
    from ..tune.study import tune as search
    from ..tune.tuning import Tuning

    tuning = Tuning.load(recipe, settings or (), space=space or (), trials=trials, sampler=sampler, pruner=pruner)
    done = search(
        tuning,
        out or Path("runs") / f"{tuning.name}-tuning",
        recipe=recipe,
        settings=settings or (),
        resume=resume,
        overwrite=overwrite,
        jobs=jobs,
        limit=None if max_time is None else read_seconds(max_time),
        device=device,
        console=console(stderr=json),
    )
    if done.report is None:
        return interrupted("tuning", done.folder)
    if json:
        echo_json(done.summary.to_dict())
        return 0
    _show(done.summary)
    echo(f"The tuning is in {done.folder}; open {done.report} in a browser.")
    return 0


def _show(summary: TuningSummary) -> None:
    from ...core.metrics.display import display_of
    from ...look.formatting import shown

    best = summary.best_row
    if best is None or best.result.value is None:
        echo("No trial finished.")
        return
    title = display_of(summary.metric).title
    echo(f"Best: trial {best.number}, {title} {shown(summary.metric, best.result.value)} on the validation split.")
    for key, share in summary.importance.items():
        echo(f"  {key} explains {share:.0%} of the differences")
    echo(f"Train these settings again:\n{summary.command}")
