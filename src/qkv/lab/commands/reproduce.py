"""`qkv reproduce`: published results beside ours; run the commands of one and compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...cli.errors import INTERRUPTED
from ...cli.options import Json
from ...cli.say import console, echo, echo_json

if TYPE_CHECKING:
    from ..reproduce.entry import PublishedResult


def _names(incomplete: str) -> list[str]:
    from ..reproduce.entry import names

    return [name for name in names() if name.startswith(incomplete)]


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A published result. [default: list them]", autocompletion=_names),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder with the downloaded data, or with a folder for each set."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder of the runs. [default: runs/reproduce/NAME]")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the commands and what differs, and stop.")] = False,
    json: Json = False,
) -> int:
    """Reproduce a published result, and compare our numbers with the published ones.

    Without NAME, all results are listed: the published numbers, ours, and the time that the commands take on one thread.
    With NAME, its commands are run and `comparison.md` is written; give the data with --data. The same command continues
    after an interruption.
    """
    if name is None:
        _list(json)
        return 0
    from ..reproduce.entry import PublishedResult, kept
    from ..reproduce.reproduce import COMPARISON, commands, reproduce
    from ..reproduce.table import rows

    entry = PublishedResult.load(name)
    folder = out or Path("runs") / "reproduce" / name
    if plan:
        files = {one.name: (data and one.find(data)) or Path(one.name) for one in entry.data}
        _print(rows(entry, kept(name)), entry)
        echo("\n".join(commands(entry, files, folder)))
        echo("\n".join(f"- {sentence}" for sentence in entry.differences))
        return 0
    command = f"qkv reproduce {name}" + (" --data DIR" if entry.data else "")
    done = reproduce(entry, data, folder, command=command, say=lambda text: echo(text, err=True))
    if done.result is None:
        echo("Interrupted. Continue with the same command.", err=True)
        return INTERRUPTED
    if json:
        echo_json({"name": name, **done.result.to_dict()})
        return 0
    _print(rows(entry, done.result), entry)
    echo(f"The comparison is in {folder / COMPARISON}.")
    return 0


def _list(json: bool) -> None:
    from ..reproduce.table import entries, rows

    if json:
        echo_json(
            [
                {**entry.to_dict(), "measured": None if result is None else result.to_dict()}
                for entry, result in entries()
            ]
        )
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None)
    for column in ("name", "figure", "published", "ours", "goal", "minutes"):
        right = column in ("published", "ours", "minutes")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for entry, result in entries():
        for i, row in enumerate(rows(entry, result)):
            first, last = (entry.name, f"{entry.minutes:g}") if not i else ("", "")
            table.add_row(*map(escape, (first, *row, last)))
    console().print(table)
    echo("`qkv reproduce NAME --plan` shows the commands, the source and what differs; `qkv reproduce NAME` runs them.")


def _print(lines: list[list[str]], entry: PublishedResult) -> None:
    from rich.markup import escape
    from rich.table import Table

    echo(f"{entry.title} ({entry.source}, {entry.link})")
    table = Table(box=None)
    for i, column in enumerate(("figure", "published", "ours", "goal")):
        table.add_column(column, justify="right" if i in (1, 2) else "left", overflow="fold")
    for line in lines:
        table.add_row(*map(escape, line))
    console().print(table)
