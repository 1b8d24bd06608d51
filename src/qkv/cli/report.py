"""`qkv report`: write the report of a run again, or a page that compares several runs, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Overwrite
from .say import echo


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories, finished or not.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="The page that compares several runs; required if there are several."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a run's `report.html` again, without training; also for a run that was interrupted or killed.

    The report of an unfinished run says how far it got and how to continue it. With several runs, write a page with the
    settings that differ, the metrics, the curves, and the outputs for the same inputs.
    """
    from ..io.directories.layout import RunState, claim_page
    from ..runs.report.report import write_report
    from ..runs.report.side_by_side import write_side_by_side

    for run in runs:
        if RunState.of(run) in (RunState.FREE, RunState.FOREIGN):
            raise ValueError(f"{run} is not a run directory; give one that `qkv train` wrote, such as runs/NAME")
    if len(runs) == 1:
        if out is not None or overwrite:
            given = "--overwrite" if out is None else "--out"
            raise ValueError(
                f"{given} is for the page of several runs; the report of one is written into its directory"
            )
        echo(f"The report is in {write_report(runs[0])}; open it in a browser.")
        return
    if out is None:
        raise ValueError("several runs are compared on a separate page; name it with --out page.html")
    if out.suffix != ".html" or out.is_dir():
        raise ValueError(f"--out is a file that ends in .html, not {out}")
    claim_page(out, overwrite)
    write_side_by_side(runs, out)
    echo(f"The comparison is in {out}; open it in a browser.")
