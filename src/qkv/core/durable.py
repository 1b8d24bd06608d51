"""Files and folders that are either wholly there or not at all, whatever kills the process in between."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from .atomic import sync_folder


def write_file(path: Path, content: bytes) -> None:
    """Replace a file by one with this content, in one step."""
    beside = path.with_name(f".tmp-{path.name}")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Wait until a written file is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace_folder(new: Path, target: Path) -> None:
    """Rename a finished folder into place. One that is there steps aside as `.old-NAME` for the moment between."""
    if target.exists():
        aside = target.with_name(f".old-{target.name}")
        target.rename(aside)
        new.rename(target)
        shutil.rmtree(aside)
    else:
        new.rename(target)
    sync_folder(target.parent)


def remove_folder(path: Path) -> None:
    """Delete a folder; it loses its name first, so that nobody meets one that is half deleted."""
    trash = path.with_name(f".tmp-{path.name}-deleted")
    path.rename(trash)
    shutil.rmtree(trash)


def tidy(root: Path) -> None:
    """Clear away what killed processes left: unfinished folders and files go, one that had stepped aside comes back."""
    for path in root.glob(".tmp-*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in root.glob(".old-*"):
        home = path.with_name(path.name.removeprefix(".old-"))
        shutil.rmtree(path) if home.exists() else path.rename(home)
