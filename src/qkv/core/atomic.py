"""Atomic writes of files and folders: complete or absent, even if the process is killed."""

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
    """Yield a temporary path. Its file replaces `path` at the end of the block, or is deleted if the block fails.

    The content is synced to disk before the rename. Several processes may write the same `path`: each uses its own file.
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
    """Write a file atomically."""
    with replacing(path) as beside:
        beside.write_bytes(content)


def sync_file(path: Path) -> None:
    """Sync a file to disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk where possible: Windows can't open folders, and some file systems can't sync them."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):  # the files themselves are synced already
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace_folder(new: Path, target: Path) -> None:
    """Rename a finished folder to `target`. An existing one is renamed to `.old-NAME` first, and then deleted."""
    if target.exists():
        aside = target.with_name(f".old-{target.name}")
        target.rename(aside)
        new.rename(target)
        shutil.rmtree(aside)
    else:
        new.rename(target)
    sync_folder(target.parent)


def remove_folder(path: Path) -> None:
    """Delete a folder. It is renamed first, so that no reader sees it half deleted."""
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
