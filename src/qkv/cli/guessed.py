"""`qkv train FILE_OR_FOLDER …`: show the recipe that was guessed for the data, and ask before it is trained."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from .say import echo, visible


def is_data(name: str) -> bool:
    """Whether what was given in place of a recipe is a file or folder of data: no recipe, YAML file or run directory."""
    from ..io.directories.layout import RECIPE
    from ..runs.recipes.packaged import packaged

    path = Path(name)
    if not path.exists() or path.suffix.lower() in (".yaml", ".yml"):
        return False
    if name in packaged():
        echo(f"{name} is a recipe; for the file or folder of that name give ./{name}", err=True)
        return False
    return path.is_file() or not any((path / file).exists() for file in (RECIPE, "config.json", "metrics.jsonl"))


def confirmed(path: Path, settings: Sequence[str], yes: bool) -> tuple[str, list[str]]:
    """The recipe and settings for the data: those that were guessed, followed by the user's. `settings` that name existing
    files are further files of data.

    Asks in a terminal. Raises ValueError if the answer is no, or if there is no terminal and no `--yes`.
    """
    from ..runs.recipes.guess import guess
    from ..runs.recipes.overrides import without_replaced
    from ..runs.recipes.recipe import Recipe

    files = [text for text in settings if "=" not in text and Path(text).is_file()]
    settings = [text for text in settings if text not in files]
    found = guess(path, *map(Path, files), settings=settings)
    for line in found.seen:
        echo(f"Seen: {line}", err=True)
    found = replace(found, settings=tuple(without_replaced(found.settings, settings)))
    Recipe.load(found.recipe, [*found.settings, *settings])  # what is shown can be run
    command = found.command(settings)
    echo(f"Guessed: {command}", err=True)
    if not yes:
        if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
            raise ValueError("nothing was trained; run the command that was guessed, or add --yes")
        if not typer.confirm(visible("Train this?"), default=True, err=True):
            raise ValueError("nothing was trained; change the command that was guessed, and run it")
    return found.recipe, [*found.settings, *settings]
