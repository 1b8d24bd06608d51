"""`qkv train FILE_OR_FOLDER …`: show the recipe that was guessed for the data, and ask before it is trained."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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


def further_files(settings: Sequence[str]) -> tuple[list[Path], list[str]]:
    """The files and folders of data beside the first one, and the settings. Raises ValueError for a text that is neither."""
    from ..core.spec import brief

    files = [text for text in settings if "=" not in text]
    if missing := [text for text in files if not Path(text).exists()]:
        raise ValueError(f"{brief(missing[0])} is not a setting (key=value), and there is no file of that name")
    return [Path(text) for text in files], [text for text in settings if "=" in text]


def confirmed(files: Sequence[Path], settings: Sequence[str], yes: bool) -> tuple[str, list[str]]:
    """Return a recipe for the data and its settings: guessed settings, followed by the user's.

    Asks in a terminal. Raises ValueError if the answer is no, if there is no terminal and no `--yes`, or if a setting
    replaces one of the files.
    """
    from ..runs.recipes.guess import guess
    from ..runs.recipes.overrides import without_replaced
    from ..runs.recipes.recipe import Recipe

    found = guess(*files, settings=settings)
    kept = without_replaced(found.settings, settings)
    _check_used(files, [text for text in found.settings if text not in kept], settings)
    for line in found.seen:
        echo(f"Seen: {line}", err=True)
    found = replace(found, settings=tuple(kept))
    Recipe.load(found.recipe, [*found.settings, *settings])  # what is shown can be run
    command = found.command(settings)
    echo(f"Guessed: {command}", err=True)
    if not yes:
        if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
            raise ValueError("nothing was trained; run the command that was guessed, or add --yes")
        if not typer.confirm(visible("Train this?"), default=True, err=True):
            raise ValueError("nothing was trained; change the command that was guessed, and run it")
    return found.recipe, [*found.settings, *settings]


def _check_used(files: Sequence[Path], dropped: Sequence[str], settings: Sequence[str]) -> None:
    """Raise ValueError if a file that was given is read by a setting that the user's settings replace, by another file."""
    from ..core.spec import brief
    from ..runs.recipes.overrides import apply, parse

    for key, value in map(parse, dropped):
        own: Any = apply({}, settings)
        for part in key.split("."):
            own = own.get(part) if isinstance(own, dict) else None
        if value not in map(str, files) or own == value:
            continue
        by = next(text for text in settings if f"{key}.".startswith(f"{parse(text)[0]}."))
        texts = isinstance(own, str) and Path(own).is_file() and Path(value).is_file()
        both = f"; to use both: qkv train {shlex.join([value, own])}" if texts else ""
        raise ValueError(f"{brief(value)} and {brief(by)} both name the data; give one of them{both}")
