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
    if os.name == "posix":  # elsewhere folders can't be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
