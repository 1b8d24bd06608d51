"""`--import` and `--yes`: ask once before a recipe or a run imports code from outside qkv, and remember the answer.

An answer is for one recipe or run and for the code as it is: of every module the answer keeps a checksum over its file,
the packages around it and where they are. If that differs, the question comes again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import typer

from ..core.atomic import write_file
from ..runs.recipes import imports
from .say import visible

Answers = dict[str, dict[str, str]]  # the recipe or run → module → checksum


def set_up(context: typer.Context, names: Sequence[str], yes: bool) -> None:
    """Import the modules of `--import` for this command, and ask before any other is imported (unless `yes`)."""
    context.call_on_close(_reset)
    imports.consent = _agree if yes else ask
    imports.from_command_line = tuple(imports.import_module(name) for name in names)


def _reset() -> None:
    imports.consent, imports.from_command_line = None, ()


def _agree(names: Sequence[str], where: str) -> None:
    """Ask nothing."""


def ask(names: Sequence[str], where: str) -> None:
    """Ask in a terminal whether a recipe or a run may import modules, unless the user has agreed to the same code before.

    Raises ValueError if the answer is no, or if there is no terminal.
    """
    agreed = _read_answers().get(_key(where), {})
    checksums = {name: checksum(name) for name in names}
    if all(agreed.get(name) == checksum for name, checksum in checksums.items()):
        return
    changed = any(agreed.get(name, checksum) != checksum for name, checksum in checksums.items())
    what = f"{where} imports {', '.join(map(_described, names))}, code from outside qkv"
    what += ", which changed since you agreed" if changed else ""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        options = " ".join(f"--import {name}" for name in names)
        raise ValueError(f"{what}; allow it with qkv {options} …, or qkv --yes …")
    if not typer.confirm(visible(f"{what}. Run it?"), default=False, err=True):
        raise ValueError(f"nothing was imported, but {where} needs {', '.join(names)}")
    remember(where, names)


def remember(where: str | Path, names: Sequence[str]) -> None:
    """Ask no more about these modules, as they are, for this recipe's file or run directory."""
    if not names:
        return
    answers, key = _read_answers(), _key(where)
    merged = {**answers.get(key, {}), **{name: checksum(name) for name in names}}
    if merged == answers.get(key):
        return
    path = _file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps({**answers, key: merged}, indent=2).encode() + b"\n")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        warnings.warn(f"{path} can't be written ({reason}), so the next command asks again", stacklevel=2)


def checksum(name: str) -> str:
    """The SHA-256 of the paths and contents of the files that importing a module runs."""
    digest = hashlib.sha256()
    for path in imports.files_of(name):
        digest.update(f"{path.resolve()}\0".encode("utf-8", "surrogateescape"))
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _described(name: str) -> str:
    """A module with the file that it is; a file as it is."""
    files = [] if name.endswith(".py") else imports.files_of(name)
    return f"{name} ({files[-1]})" if files else name


def _read_answers() -> Answers:
    """The answers so far; none, with a warning, if the file is unreadable."""
    path = _file()
    try:
        answers = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(answers, dict):
            raise ValueError(f"it holds a {type(answers).__name__}")
    except FileNotFoundError:
        return {}
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
    except (ValueError, RecursionError):
        problem = "it is damaged"
    else:
        return {key: modules for key, modules in answers.items() if isinstance(modules, dict)}
    warnings.warn(f"{path}, the earlier answers about imports, can't be read ({problem}); delete it", stacklevel=2)
    return {}


def _file() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "qkv" / "imports.json"


def _key(where: str | Path) -> str:
    return str(Path(where).resolve())
