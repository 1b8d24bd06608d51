"""`qkv list`: what there is to choose from, each with one line about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

import typer

Row = tuple[str, str]


def list_(
    what: Annotated[
        str | None, typer.Argument(metavar="recipes|presets|patterns|positions|objectives", help="What to list.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List what there is: recipes, presets, patterns, positions, objectives. The registries are open, so yours is too."""
    if what is None:
        raise ValueError(f"list what? One of {', '.join(LISTS)}")
    if what not in LISTS:
        from ..core.spec import nearest

        raise ValueError(f"there is no list of {what!r}; {nearest(what, LISTS)}")
    rows = LISTS[what]()
    if json:
        from json import dumps

        typer.echo(dumps(dict(rows), indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=what, title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(*map(_plain, row))
    Console().print(table)


def _recipes() -> list[Row]:
    from ..run import recipe, yamls

    return [(name, str(yamls.load(text, name)["description"])) for name, text in recipe.packaged().items()]


def _presets() -> list[Row]:
    from .. import families

    return [
        (name, f"{families.preset(name).n_parameters:,} parameters. {_line(factory)}")
        for name, (factory, _) in families.PRESETS.items()
    ]


def _patterns() -> list[Row]:
    from ..core.patterns import Pattern

    return _kinds(Pattern.kinds)


def _positions() -> list[Row]:
    from ..core.positions import Position

    return _kinds(Position.kinds)


def _objectives() -> list[Row]:
    from ..train.objective import Objective

    return _kinds(Objective.kinds)


LISTS: dict[str, Callable[[], list[Row]]] = {
    "recipes": _recipes,
    "presets": _presets,
    "patterns": _patterns,
    "positions": _positions,
    "objectives": _objectives,
}


def _kinds(kinds: Any) -> list[Row]:
    return [(name, _line(member)) for name, member in kinds.items()]


def _line(thing: Any) -> str:
    """The first sentence of a docstring, on one line; `et al.` ends none."""
    thing = getattr(thing, "func", thing)  # of a partial, what it calls
    paragraph = " ".join((thing.__doc__ or "").strip().split("\n\n")[0].split())
    sentence = re.split(r"(?<!al)\. ", paragraph, maxsplit=1)[0]
    return f"{sentence.rstrip('.')}." if sentence else ""


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
