"""Atomic writes: files and folders that are whole or not there at all, whatever kills the process in between."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path to write a file to, which replaces `path` when the block ends; if the block fails, it is deleted.

    The content is on the disk before it gets the name. Processes may race for a name: each writes a file of its own.
    """
    path = Path(path)
    beside = path.with_name(f".tmp-{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        yield beside
        sync_file(beside)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_file(path: Path, content: bytes) -> None:
    """Replace a file, in one step, by one with this content."""
    with replacing(path) as beside:
        beside.write_bytes(content)


def sync_file(path: Path) -> None:
    """Wait until a written file is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until a folder's entries are on the disk, where the system can: Windows opens no folders, and some file systems
    don't sync them."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):  # the files themselves are synced already
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace_folder(new: Path, target: Path) -> None:
    """Rename a finished folder to `target`. An existing one is `.old-NAME` for the moment between."""
    if target.exists():
        aside = target.with_name(f".old-{target.name}")
        target.rename(aside)
        new.rename(target)
        shutil.rmtree(aside)
    else:
        new.rename(target)
    sync_folder(target.parent)


def remove_folder(path: Path) -> None:
    """Delete a folder. It is renamed first, so that no reader meets one that is half deleted."""
    trash = path.with_name(f".tmp-{path.name}-deleted")
    path.rename(trash)
    shutil.rmtree(trash)


def tidy(root: Path) -> None:
    """Clean up after killed processes: delete unfinished files and folders, and restore folders that were set aside."""
    for path in root.glob(".tmp-*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in root.glob(".old-*"):
        home = path.with_name(path.name.removeprefix(".old-"))
        shutil.rmtree(path) if home.exists() else path.rename(home)
