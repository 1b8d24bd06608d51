"""Guess a recipe for a file or a folder: which task, which columns, which sizes."""

from __future__ import annotations

from pathlib import Path

from ...core import several
from .files import of_file
from .folders import is_archive, of_folder
from .result import KNOWN, Guess

__all__ = ["Guess", "guess"]


def guess(path: Path | str) -> Guess:
    """The recipe, with settings, for what is in a file, a folder or an archive.

    Raises ValueError that says what was seen and what is known if nothing fits, and OSError for a path that can't be read.
    """
    path = several.path(path, "the data")
    found = of_folder(path) if path.is_dir() or is_archive(path) else of_file(path)
    if isinstance(found, Guess):
        return found
    raise ValueError(f"can't tell what to train on {str(path)!r}: {found}; {KNOWN}")
