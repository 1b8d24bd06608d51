"""The folders that qkv and its libraries write into, and the free space of their disks."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ...data.files import cache
from .check import DoctorCheck, gigabytes

SECTION = "storage"
_LITTLE, _TOO_LITTLE = 5 * 2**30, 200 * 2**20  # free bytes: of a note, and of a problem


def checks() -> Iterator[DoctorCheck]:
    """Yield each folder: whether it can be written to, and what its disk has free."""
    yield _folder("this folder", Path.cwd(), "start qkv elsewhere, or give --out")
    yield _folder("cache of qkv", cache.folder(), "set QKV_CACHE to a folder that you own")
    yield _folder("cache of the Hub", _hub(), "set HF_HOME to a folder that you own")
    yield _folder("temporary files", Path(tempfile.gettempdir()), "set TMPDIR to a folder that you own")


def _hub() -> Path:
    chosen = os.environ.get("HF_HOME")
    return Path(chosen or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface").expanduser()


def _folder(name: str, path: Path, remedy: str) -> DoctorCheck:
    there = next(place for place in (path, *path.parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        reason = "is not a folder" if not there.is_dir() else "can't be written to"
        return DoctorCheck(SECTION, name, f"{path}: {there} {reason}", "problem", remedy)
    free = shutil.disk_usage(there).free
    value = f"{path}, {gigabytes(free)} free"
    if free >= _LITTLE:
        return DoctorCheck(SECTION, name, value)
    return DoctorCheck(
        SECTION, name, value, "problem" if free < _TOO_LITTLE else "note", f"free some space, or {remedy}"
    )
