"""`qkv ablate`: train variants of a recipe with several seeds at equal budgets, and compare them in a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...cli import completion
from ...cli.options import Device, Json
from ...cli.say import console, echo, warn
from .studies import Recipe, interrupted, resume_or_overwrite

if TYPE_CHECKING:
    from ..ablate.summary import AblationSummary


def ablate(
    recipe: Recipe,
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Settings of all variants, such as `training.max_steps=100`.",
            autocompletion=completion.settings,
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,VALUE",
            help="A key of the recipe or of its model and the values to try, such as "
            "`decoder.position=rotary,alibi,none`; repeatable.",
        ),
    ] = None,
    drop: Annotated[
        str | None,
        typer.Option(
            metavar="PART,PART",
            help="Remove parts, one at a time: `residual`, `norm`, `scale`, `position`, `feedforward`, `heads`.",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Runs of each variant. [default: the recipe's, or 3]")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="steps|tokens|flops|time", help="What is equal for all variants. [default: the recipe's, or steps]"
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option("--random", metavar="N", min=2, help="Train N combinations of the values, chosen at random."),
    ] = None,
    one_at_a_time: Annotated[
        bool, typer.Option("--one-at-a-time", help="Change one key at a time instead of all combinations.")
    ] = False,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Runs to train at once.")] = 1,
    time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Refuse to begin if the prediction is longer than this: `30m`, `2h`."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The directory of the ablation. [default: runs/NAME-ablation]")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the ablation in the directory; runs that are done are kept.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the ablation in the directory.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> int:
    """Train variants of a recipe with several seeds at equal budgets, and compare them in a table.

    `--vary` gives the values of a key; several keys make a grid. `--drop` removes parts of the model. Without either, the
    recipe's own `ablate` is trained, or every part that the model has is removed in turn. A run that diverges is a row of
    the table. The directory gets `report.html` and the table as Markdown, LaTeX, CSV and JSON.
    """
    resume_or_overwrite(resume, overwrite, "an ablation")
    from rich.console import Console

    from ...training.settings import read_seconds
    from ..ablate.ablation import Ablation, as_budget
    from ..ablate.study import run_ablation

    ablation = Ablation.load(
        recipe,
        settings or (),
        vary=vary or (),
        parts=[part.strip() for part in drop.split(",")] if drop else (),
        seeds=seeds,
        budget=None if budget is None else as_budget(budget),
        sample=sample,
        alone=one_at_a_time,
    )
    study = run_ablation(
        ablation,
        out or Path("runs") / f"{ablation.name}-ablation",
        resume=resume,
        overwrite=overwrite,
        jobs=jobs,
        limit=None if time is None else read_seconds(time),
        device=device,
        console=Console(quiet=True) if json else console(),
    )
    if study.report is None:
        return interrupted("ablation", study.folder)
    if json:
        from ...core import json_files

        echo(json_files.dumps(study.summary.to_dict(), indent=2))
        return 0
    _show(study.summary)
    echo(f"The ablation is in {study.folder}; open {study.report} in a browser.")
    return 0


def _show(summary: AblationSummary) -> None:
    from rich.markup import escape
    from rich.table import Table

    from ..ablate.tables import paired, same_results, short_cells

    terminal = console()
    head, rows = short_cells(summary, terminal.width)
    table = Table(box=None)
    for i, name in enumerate(head):
        table.add_column(name, justify="right" if i else "left", overflow="fold", no_wrap=i > 0)
    for row in rows:
        table.add_row(*map(escape, row))
    terminal.print(table)
    for sentence in paired(summary):
        echo(sentence)
    for sentence in same_results(summary):
        warn(sentence)
