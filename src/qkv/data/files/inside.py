"""Files that a data file names: they lie in a folder that the user gave, and nowhere else."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path, PureWindowsPath

from ...core.spec import brief

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # https://…, file:…; a drive of Windows has one letter


def inside(folder: Path, name: str, where: str, advice: str = "") -> Path:
    """The path of a file that a data file names, relative to a folder; `\\` divides folders, as on Windows, unless a file
    has that very name.

    Raises ValueError, with `where` the name stands, for a path that leaves the folder: an absolute one to another place, one
    with `..`, a link, or an address; `advice` says what to do about it.
    """
    path = Path(name)
    if not name.strip() or "\0" in name:
        raise ValueError(f"{where} names the file {brief(name)}, which is no path")
    if _ADDRESS.match(name):
        raise ValueError(
            f"{where} names {brief(name)}, and addresses are not followed; download the file and name its path"
        )
    try:
        if "\\" in name and not (folder / path).exists():
            path = Path(name.replace("\\", "/"))
        leaves = name.startswith(("~", "\\")) or ".." in path.parts or (not path.is_absolute() and _drive(name))
        leaves = leaves or not _real(folder / path).is_relative_to(_real_folder(folder))
    except (OSError, RuntimeError, ValueError) as error:  # a name that is too long, links that go round
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ValueError(f"{where} names the file {brief(name)}, which can't be looked up: {reason}") from None
    if leaves:
        raise ValueError(
            f"{where} names the file {brief(name)}, which lies outside of {brief(folder)}; files are read from this folder "
            f"only{f' ({advice})' if advice else ''}"
        )
    return folder / path


def _drive(name: str) -> bool:
    return bool(PureWindowsPath(name).drive)


def _real(path: Path) -> Path:
    """A path without links. Folders are looked up once, since thousands of files lie in one."""
    return path.resolve() if path.is_symlink() else _real_folder(path.parent) / path.name


@lru_cache(maxsize=4096)
def _real_folder(folder: Path) -> Path:
    return folder.resolve()
