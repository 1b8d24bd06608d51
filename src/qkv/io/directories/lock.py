"""Lock a run directory, so only one process trains in it. The system releases the lock when its owner dies."""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from ...core.atomic import make_folder, recover, remove

LOCK, OWNER = ".lock", ".owner.json"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Callable[[Path], None]]:
    """Hold the lock of a folder. The folder is created if needed, and removed again if it is still empty at the end.

    Yields a function that also locks another folder, which will take the place of this one. Raises ValueError, with nothing
    in the folder touched, while another process trains there. Reading needs no lock.
    """
    from filelock import FileLock, Timeout  # imported here: reading a directory does not need it

    def extend(replacement: Path) -> None:
        locks.append(FileLock(replacement / LOCK))
        locks[-1].acquire(blocking=False)
        (replacement / OWNER).write_text(json.dumps(_myself()), encoding="utf-8")

    recover(folder)
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    make_folder(folder)
    locks = [FileLock(folder / LOCK)]
    try:
        locks[0].acquire(blocking=False)
    except Timeout:
        raise ValueError(
            f"{folder} is in use by {_owner(folder)}; wait until that has ended, or give another directory with --out"
        ) from None
    try:
        (folder / OWNER).write_text(json.dumps(_myself()), encoding="utf-8")
        yield extend
    finally:
        for name in (OWNER, LOCK):
            with contextlib.suppress(OSError):  # Windows deletes no open file; an empty one does no harm
                remove(folder / name)
        for lock in locks:
            lock.release()
        with contextlib.suppress(OSError):  # stops at the first that is not empty
            for path in new_folders:
                path.rmdir()


def owner_of(folder: Path) -> str | None:
    """The process that trains in a folder, read from the owner file without trying the lock; None if there is none, or
    if it was a process of this machine that has died."""
    import psutil

    try:
        owner = json.loads((folder / OWNER).read_text(encoding="utf-8"))
        began = datetime.fromisoformat(owner["since"]).timestamp()
        if owner["host"] == platform.node() and psutil.Process(owner["pid"]).create_time() > began + 1:
            return None  # another process that got the number later
        return _owner(folder)
    except (OSError, ValueError, LookupError, TypeError, psutil.NoSuchProcess):
        return None
    except psutil.Error:  # it is there, and may not be asked
        return _owner(folder)


def _myself() -> dict[str, object]:
    return {"pid": os.getpid(), "host": platform.node(), "since": datetime.now().astimezone().isoformat(" ", "seconds")}


def _owner(folder: Path) -> str:
    """The holder of the lock, by the owner file."""
    try:
        owner = json.loads((folder / OWNER).read_text(encoding="utf-8"))
        return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
    except (OSError, ValueError, LookupError, TypeError):
        return "another process"
