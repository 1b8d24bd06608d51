"""`qkv report`: write the report of a run again, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .say import echo


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, finished or not.")],
) -> None:
    """Write a run's `report.html` again, without training; also for a run that was interrupted or killed.

    The report of an unfinished run says how far it came and how to continue it.
    """
    from ..directories.layout import State
    from ..experiments.report.report import write_report

    if State.of(run) in (State.FREE, State.FOREIGN):
        raise ValueError(f"{run} is not a run directory; give one that `qkv train` wrote, such as runs/NAME")
    echo(f"The report is in {write_report(run)}; open it in a browser.")
