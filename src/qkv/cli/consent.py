"""`--import` and `--yes`: ask before a recipe or a run imports modules from outside qkv, and remember the answer."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from ..recipes import imports


def set_up(context: typer.Context, names: Sequence[str], yes: bool) -> None:
    """Import the modules of `--import` for this command, and ask before any other is imported (unless `yes`)."""
    context.call_on_close(_reset)
    imports.consent = _agree if yes else ask
    imports.given = tuple(imports.import_module(name) for name in names)


def _reset() -> None:
    imports.consent, imports.given = None, ()


def _agree(names: Sequence[str], where: str) -> None:
    """Ask nothing."""


def ask(names: Sequence[str], where: str) -> None:
    """Ask in the terminal whether a recipe or a run may import modules, unless the user has agreed before.

    Raises ValueError if the answer is no, or if there is no terminal.
    """
    if set(names) <= set(_remembered().get(_key(where), [])):
        return
    listed = ", ".join(names)
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        options = " ".join(f"--import {name}" for name in names)
        raise ValueError(
            f"{where} imports {listed}, code from outside qkv; allow it with qkv {options} …, or qkv --yes …"
        )
    if not typer.confirm(f"{where} imports {listed}, code from outside qkv. Run it?", default=False, err=True):
        raise ValueError(f"nothing was imported, but {where} needs {listed}")
    remember(where, names)


def remember(where: str | Path, names: Sequence[str]) -> None:
    """Record that this recipe file or run directory may import these modules."""
    known, key = _remembered(), _key(where)
    merged = sorted({*known.get(key, []), *names})
    if not names or merged == known.get(key):
        return
    path = _file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**known, key: merged}, indent=2) + "\n", encoding="utf-8")


def _remembered() -> dict[str, list[str]]:
    try:
        known = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _file() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "qkv" / "imports.json"


def _key(where: str | Path) -> str:
    return str(Path(where).resolve())
