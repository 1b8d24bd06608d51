"""`qkv doctor`: check the installation and this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ...cli.options import Json
from ...cli.say import console, echo, echo_json

if TYPE_CHECKING:
    from ..doctor.check import DoctorCheck


def doctor(
    build: Annotated[bool, typer.Option("--build", help="Compile the C++ kernels that are missing.")] = False,
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Whether to measure the speed, for about four seconds.")
    ] = True,
    json: Json = False,
) -> None:
    """Check the installation and this machine: versions, devices, threads, compiler and C++ kernels, disks, and what is slow
    here and why.

    Each line is ok (✓), a note (!) about something slow, or a problem (✗): something broken. Notes and problems
    say what to do. The exit status is 1 if there is a problem, else 0.
    """
    from dataclasses import asdict

    checks = _examine(build, measure)
    problems = [check for check in checks if check.status == "problem"]
    if json:
        echo_json({"ok": not problems, "checks": [asdict(check) for check in checks]})
    else:
        _show(checks)
    if problems:
        raise typer.Exit(1)


def _examine(build: bool, measure: bool) -> list[DoctorCheck]:
    """All checks; if PyTorch can't be imported, that alone."""
    from ..doctor.check import DoctorCheck

    start = None if "torch" in sys.modules else time.perf_counter()
    try:
        import torch  # noqa: F401
    except (ImportError, OSError) as error:
        value = f"can't be imported: {' '.join(str(error).split())}"
        return [DoctorCheck("versions", "torch", value, "problem", 'pip install --force-reinstall "torch>=2.11,<2.15"')]
    seconds = None if start is None else time.perf_counter() - start
    from ..doctor.examination import examine

    return list(examine(build, measure, seconds))


def _show(checks: Sequence[DoctorCheck]) -> None:
    from rich.table import Table
    from rich.text import Text

    from ...core.spec import counted

    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    section = ""
    for check in checks:
        mark, style = _mark(check)
        remedy = f"{' ' if check.status == 'ok' else chr(10)}→ {check.remedy}" if check.remedy else ""
        name = Text(check.section if check.section != section else "")
        table.add_row(name, Text(mark, style), Text(check.name), Text.assemble(check.value, (remedy, style)))
        section = check.section
    console().print(table)
    counts = [
        counted(len(names), status) + (f" ({', '.join(names)})" if names else "")
        for status in ("problem", "note")
        for names in [[check.name for check in checks if check.status == status]]
    ]
    echo(f"\n{'; '.join(counts)}")


def _mark(check: DoctorCheck) -> tuple[str, str]:
    """The sign before a line, and its style. What is optional and not installed has its own sign."""
    if check.status == "ok":
        return ("·", "dim") if check.remedy else ("✓", "green")
    return ("!", "yellow") if check.status == "note" else ("✗", "bold red")
