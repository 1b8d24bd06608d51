"""Guess a recipe for files or a folder: which task, which columns, which sizes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....core.several import path as path_of
from ....core.spec import brief
from ....data.files.records import RecordFormat
from ....data.readers.labelled_text import Labelled
from ..overrides import apply
from .files import of_file
from .folders import is_archive, of_folder
from .listed import of_listed
from .result import KNOWN, Guess
from .several import of_files

__all__ = ["Guess", "guess"]

_READING = ("header", "sep", "quoted", "quote", "escape", "encoding", "format", "missing")  # how a file is read
_TABLES = 20  # tables of a folder that are looked at


def guess(*paths: Path | str, settings: Iterable[str] = ()) -> Guess:
    """The recipe, with settings, for what is in a file, a folder or an archive, or in several files. The user's `settings`
    that say how files are read, such as `data.header=false`, are obeyed.

    Raises ValueError that says what was seen and what is known if nothing fits, and OSError for a path that can't be read.
    """
    how, files = _reading(settings), [path_of(path, "the data") for path in paths]
    if not files:
        raise ValueError("give the data: a file, a folder or an archive, or several files")
    path = files[0]
    if len(files) > 1:
        found = of_files(files, how)
    else:
        found = (
            of_folder(path, how) if path.is_dir() or is_archive(path) else of_listed(path, how) or of_file(path, how)
        )
    if isinstance(found, str) and path.is_dir():
        found = _of_its_table(path, how) or found
    if isinstance(found, Guess):
        return found
    what = " and ".join(repr(str(path)) for path in paths[:4])
    raise ValueError(f"can't tell what to train on {what}: {found}; {KNOWN}")


def _of_its_table(folder: Path, how: RecordFormat) -> Guess | None:
    """The guess for the one table in a folder, or in a folder in it, that names pictures, sounds or videos."""
    tables = [
        path for depth in ("", "*/") for form in ("csv", "tsv") for path in sorted(folder.glob(f"{depth}*.{form}"))
    ]
    found = [one for one in (of_listed(table, how) for table in tables[:_TABLES]) if isinstance(one, Guess)]
    return found[0] if len(found) == 1 else None


def _reading(settings: Iterable[str]) -> RecordFormat:
    """How files are read. Raises ValueError for a setting that is not `KEY=VALUE`, or has a wrong value."""
    every = apply({}, settings)
    if alone := [name for name in _READING if name in every]:
        raise ValueError(f"{alone[0]} is a setting of the data; write data.{alone[0]}={brief(every[alone[0]])}")
    given: dict[str, Any] = every.get("data") or {}
    chosen = {name: given[name] for name in _READING if isinstance(given, dict) and name in given}
    source = Labelled.from_dict(chosen)
    return replace(source.reading, strict=False)
