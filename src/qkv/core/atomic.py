"""A file that is wholly at its path or not there at all, whatever kills the process in between."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """A path beside this one to write to. When the block ends, what was written is on the disk and gets its name; when the
    block fails, nothing is left of it. Processes may race for a name: each writes a file of its own."""
    path = Path(path)
    beside = path.with_name(f".tmp-{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        yield beside
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until a folder's entries are on the disk, where the system can: Windows opens no folders, and some file systems
    don't sync them."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):  # what the entries name is written already
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
