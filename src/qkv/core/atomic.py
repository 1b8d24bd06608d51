"""Replace files and folders as a whole: whatever stops the process, the old one or the new one is there.

All of qkv writes over things and removes them through this module.

What is new is written beside its place as `.tmp-NAME-HOST-PID-RANDOM`, synced to disk, and renamed. A folder exchanges
names with the one that it replaces, which is removed afterwards. If the system can't exchange names, the old folder is
called `.old-NAME` for a moment; `recover` renames it back if the process was killed in this moment.

A folder whose replacement takes hours, such as a run, is renamed to `.old-NAME` when the new one begins (`beginning`), and
kept until the new one is finished (`drop_old`).

A command calls `claim` before it computes a new file. If another process creates that file in the meantime, the file is
kept: the last check and the rename are one operation.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

_UNFINISHED = re.compile(r"\.tmp-(?P<name>.+)-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}")
_LONGEST = 180  # bytes of a name that a temporary name repeats; file systems allow 255
_claimed: set[Path] = set()  # files that this process writes only to free names


class WrongPlace(OSError, ValueError):
    """Raised if a path can't be written because of what is there. `strerror` is the system's reason."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(code, os.strerror(code))
        self.sentence = sentence

    def __str__(self) -> str:
        return self.sentence


# -- files ---------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path. Its file replaces `path` at the end of the block, or is deleted if the block fails.

    The content is synced to disk before the rename. Several processes may write the same `path`: each uses its own file.
    A link is followed. What is no regular file, such as /dev/stdout or a pipe, is written to.

    Raises WrongPlace, a ValueError and OSError, if `path` is a directory, or below a file, or if this process has claimed it
    and another one has written it since.
    """
    path = Path(path)
    check_above(path)
    if path.is_dir():
        raise WrongPlace(errno.EISDIR, f"{path} is a directory; give the name of a file")
    path = real(path) if path.is_symlink() else path
    if path.exists() and not path.is_file() and not path.is_dir():
        with _copied_into(path) as content:
            yield content
        return
    sweep(path)
    beside = _beside(path)
    try:
        yield beside
        sync_file(beside)
        _rename_to_free(beside, path) if path.absolute() in _claimed else beside.replace(path)
        _claimed.discard(path.absolute())
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(beside):
            error.filename = str(path)
        raise
    sync_folder(path.parent)


def claim(path: str | Path, overwrite: bool = False) -> None:
    """Call this when a command begins that will write the file `path`. Without `overwrite`, the next `replacing` or
    `write_file` of `path` in this process fails if another process has written the file in the meantime.

    Raises WrongPlace if there is a file and `overwrite` is false, or if `path` is a directory or below a file.
    """
    path = Path(path)
    check_above(path)
    if path.is_dir():
        raise WrongPlace(errno.EISDIR, f"{path} is a directory; give the name of a file")
    if path.is_file() and not overwrite:
        raise WrongPlace(errno.EEXIST, f"{path} already exists; replace it with --overwrite, or choose another name")
    if not path.exists() or path.is_file():
        _check_writable(path)
    place = (real(path) if path.is_symlink() else path).absolute()
    _claimed.discard(place) if overwrite else _claimed.add(place)


def _rename_to_free(new: Path, path: Path) -> None:
    """Rename a file in one operation that fails if `path` exists. If the system or the file system has none, a hard link
    is made instead; if there are no links either (FAT on macOS, for example), the check comes just before the rename."""
    try:
        if sys.platform == "win32":
            new.rename(path)
        elif not _renamed_with(new, path, 4 if sys.platform == "darwin" else 1):  # RENAME_EXCL, RENAME_NOREPLACE
            _link(new, path)
    except FileExistsError:
        raise WrongPlace(
            errno.EEXIST,
            f"another process has written {path} in the meantime, and it is kept; choose another name, or move that file "
            "and try again",
        ) from None


def _link(new: Path, path: Path) -> None:
    try:
        path.hardlink_to(new)
        new.unlink()
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if path.exists():
            raise FileExistsError from None
        new.rename(path)


@contextlib.contextmanager
def _copied_into(stream: Path) -> Iterator[Path]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        content = Path(folder) / "content"
        yield content
        with content.open("rb") as file, stream.open("wb") as out:
            shutil.copyfileobj(file, out)


def _short(name: str) -> str:
    """The first `_LONGEST` bytes of a name."""
    return os.fsencode(name)[:_LONGEST].decode("utf-8", "ignore")


def check_above(path: Path) -> None:
    """Raise WrongPlace if `path` is below a file."""
    above = next((folder for folder in path.parents if folder.exists()), None)
    if above is not None and not above.is_dir():
        raise WrongPlace(errno.ENOTDIR, f"{above} is a file, so {path} can't be written; choose another place")


def _check_writable(path: Path, folder: bool = False) -> None:
    """Raise WrongPlace if this user may not write into the directory of `path`, or into `path` if it is a `folder`."""
    place = real(path)
    above = next((one for one in ((place, *place.parents) if folder else place.parents) if one.exists()), None)
    if above is not None and not os.access(above, os.W_OK):
        raise WrongPlace(
            errno.EACCES, f"{path} can't be written: this user may not write into {above}; choose another one"
        )


def check_folder(path: Path, *, writable: bool = True) -> None:
    """Raise WrongPlace if there can be no folder `path`, or if this user may not write into it."""
    check_above(path)
    if path.is_file():
        raise WrongPlace(errno.ENOTDIR, f"{path} is a file, and a directory is needed there; choose another place")
    if writable:
        _check_writable(path, folder=True)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, if they are missing. Raises WrongPlace if one of them is a file."""
    check_folder(path, writable=False)  # its files are pipes, for example
    real(path).mkdir(parents=True, exist_ok=True)  # a link to what is missing gets it


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with replacing(path) as beside:
        beside.write_bytes(content)


def write_files(contents: Mapping[Path, bytes], stale: Iterable[Path] = ()) -> None:
    """Replace several files in their order, after `stale` ones are deleted. All new ones are synced to disk before anything
    is replaced or deleted, so a full disk leaves the old ones."""
    with contextlib.ExitStack() as stack:
        for path, content in reversed(list(contents.items())):  # the first one that is entered is replaced last
            beside = stack.enter_context(replacing(path))
            beside.write_bytes(content)
            sync_file(beside)
        for path in stale:
            remove(path)


def sync_file(path: Path) -> None:
    """Sync a file to disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk if possible: Windows can't open folders, and some file systems can't sync them."""
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


def remove(path: Path) -> None:
    """Delete a file, a link or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# -- folders -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def replacing_folder(target: str | Path, check: Callable[[Path], object] = lambda folder: None) -> Iterator[Path]:
    """Yield an empty folder beside `target`. It takes the place of `target` at the end of the block, or is deleted if the
    block fails.

    check: called with `target` before the block and after it, if there is such a folder; raises ValueError if it may not be
        replaced. An empty folder is always replaced.

    Raises ValueError if `target` is a file, below a file, the working directory or a mount point.
    """
    target = real(target)
    if _UNFINISHED.fullmatch(target.name):  # what such a block is writing is not in its place yet
        yield target
        return
    check_replaceable(target, check)
    sweep(target)
    make_folder(target.parent)
    beside = _beside(target)
    beside.mkdir()
    try:
        yield beside
        for path in beside.rglob("*"):
            sync_file(path) if path.is_file() else sync_folder(path)
        if not _renamed(beside, target):
            check_replaceable(target, check)
            replace_folder(beside, target)
    except BaseException as error:
        shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, OSError) and isinstance(error.filename, str):
            error.filename = str(_final(Path(error.filename)))
        raise


def _renamed(new: Path, target: Path) -> bool:
    """Rename a folder to `target` if nothing, or an empty folder, is there. This is one operation: what another process
    puts there meanwhile stays."""
    with contextlib.suppress(OSError):
        if not target.exists() or not any(target.iterdir()):
            new.rename(target)
            sync_folder(target.parent)
    return not new.exists()


def check_replaceable(target: Path, check: Callable[[Path], object] = lambda folder: None) -> None:
    """Raise ValueError if a folder can't take the place of `target`, or if `check` refuses the folder that is there."""
    target = real(target)
    check_above(target)
    _check_writable(target)
    recover(target)
    if not target.exists():
        return
    if not target.is_dir():
        raise ValueError(f"{target} is a file, and a directory is written; choose another name")
    if target.is_mount():
        raise ValueError(f"{target} is a mount point, which can't be replaced; choose a directory inside it")
    if target in (here := Path.cwd(), *here.parents):
        raise ValueError(
            f"{target} is, or contains, the working directory and can't be replaced; choose another directory"
        )
    if any(target.iterdir()):
        check(target)


def replace_folder(new: Path, target: Path) -> None:
    """Put a finished folder in the place of `target`, and delete the one that was there."""
    if not target.exists():
        new.rename(target)
    elif _exchange(new, target):
        sync_folder(target.parent)
        shutil.rmtree(new, ignore_errors=True)  # the old one now; what is left of it, a later `sweep` removes
    else:
        set_aside(target)
        try:
            new.rename(target)
        except OSError:
            put_back(target)
            raise
        drop_old(target)
    sync_folder(target.parent)


def rename_folder(path: Path, name: Path) -> None:
    """Give a folder a name that is free."""
    path.rename(name)
    sync_folder(name.parent)


def remove_folder(path: Path) -> None:
    """Delete a folder. It is renamed first, so no reader sees it half deleted."""
    trash = _beside(path)
    path.rename(trash)
    shutil.rmtree(trash)


def tidy(root: Path) -> None:
    """Clean up a folder that no other process writes to: delete what killed processes left unfinished, and rename back what
    they had set aside."""
    for path in root.glob(".tmp-*"):
        remove(path)
    for path in root.glob(".old-*"):
        home = path.with_name(path.name.removeprefix(".old-"))
        remove(path) if home.exists() else path.rename(home)


@contextlib.contextmanager
def scratch_folder(target: str | Path) -> Iterator[Path]:
    """Yield an empty folder beside `target` that is deleted at the end of the block. If the process is killed, the next
    `sweep` of `target` deletes it."""
    target = real(target)
    sweep(target)
    beside = _beside(target)
    beside.mkdir()
    try:
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)


# -- folders that are replaced over hours ----------------------------------------------------------------------------------


def old(target: Path) -> Path:
    """Where the folder is kept that `target` replaces."""
    target = real(target)
    if len(os.fsencode(target.name)) > 250:
        return target.with_name(f".old-{_short(target.name)}-{zlib.crc32(os.fsencode(target.name)):08x}")
    return target.with_name(f".old-{target.name}")


@contextlib.contextmanager
def beginning(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside `target`, for the first files of the one that will replace it. At the end of the block it
    takes the place of `target`, which is kept as `old(target)` until `drop_old` or `put_back`.

    If a folder is kept already, `target` is an unfinished replacement of it, and is deleted.
    """
    target = real(target)
    sweep(target)
    beside = _beside(target)
    beside.mkdir()
    try:
        yield beside
        set_aside(target)
        beside.rename(target)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        recover(target)
        raise
    sync_folder(target.parent)


def set_aside(target: Path) -> None:
    """Rename a folder to `old(target)`, or delete it if there is one already."""
    if old(target).exists():
        remove_folder(target)
    else:
        target.rename(old(target))
    sync_folder(old(target).parent)


def put_back(target: Path) -> None:
    """Delete what was begun at `target`, and rename the old folder back. Does nothing if no folder was set aside."""
    if old(target).exists():
        if target.exists():
            remove_folder(target)
        recover(target)


def drop_old(target: Path) -> None:
    """Delete the folder that was set aside, because `target` is finished."""
    if old(target).exists():
        remove_folder(old(target))


def recover(target: Path) -> None:
    """Rename back a folder that was set aside, if nothing has taken its place."""
    if not target.exists() and (aside := old(target)).is_dir():
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            aside.rename(real(target))
            sync_folder(aside.parent)


# -- room ----------------------------------------------------------------------------------------------------------------


def check_room(target: Path, size: int) -> None:
    """Raise OSError if the disk of `target` has fewer than `size` bytes free."""
    there = next(path for path in (real(target), *real(target).parents) if path.exists())
    free = shutil.disk_usage(there).free
    if size > free:
        needed, there_is = (f"{n / 1e6:,.1f} MB" if n >= 1e5 else f"{n:,} bytes" for n in (size, free))
        raise OSError(
            f"{_final(target)} takes {needed}, and its disk has {there_is} free; free some, or choose another disk; nothing "
            "was written"
        )


def _final(path: Path) -> Path:
    """The place that a path below a temporary folder will have."""
    names = [match["name"] if (match := _UNFINISHED.fullmatch(name)) else name for name in path.parts]
    return Path(*names)


# -- what processes leave --------------------------------------------------------------------------------------------------


@cache  # once in a process
def sweep(target: Path) -> None:
    """Delete what processes of this machine that are gone left unfinished beside `target`."""
    if not target.parent.is_dir():
        return
    names = (_short(target.name), _short(f".old-{target.name}"))
    for path in target.parent.glob(".tmp-*"):
        match = _UNFINISHED.fullmatch(path.name)
        if match and match["name"] in names and match["host"] == _host() and not _alive(int(match["pid"])):
            with contextlib.suppress(OSError):  # another process was faster
                remove(path)


def _alive(pid: int) -> bool:
    import psutil

    return psutil.pid_exists(pid)


@cache
def _host() -> str:
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _beside(path: Path) -> Path:
    """A temporary name beside `path`."""
    return path.with_name(f".tmp-{_short(path.name)}-{_host()}-{os.getpid()}-{secrets.token_hex(4)}")


def real(path: str | Path) -> Path:
    """The absolute path, without links. Raises WrongPlace for a link that leads back to itself."""
    try:
        return Path(path).resolve()
    except RuntimeError:  # Python 3.11 and 3.12
        raise WrongPlace(errno.ELOOP, f"{path} is a link that leads back to itself; choose another place") from None


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one operation. Returns False if the system or the file system can't."""
    return _renamed_with(one, other, 2)  # RENAME_EXCHANGE, RENAME_SWAP


def _renamed_with(one: Path, other: Path, flag: int) -> bool:
    """Rename with a flag of Linux's renameat2 or macOS's renamex_np. Returns False if the system or the file system has no
    such operation."""
    import ctypes

    if sys.platform not in ("linux", "darwin"):
        return False
    library, names = ctypes.CDLL(None, use_errno=True), (os.fsencode(one), os.fsencode(other))
    if hasattr(library, "renameat2"):
        failed = library.renameat2(-100, names[0], -100, names[1], flag)  # AT_FDCWD twice
    elif hasattr(library, "renamex_np"):  # macOS
        failed = library.renamex_np(*names, flag)
    else:
        return False
    number = ctypes.get_errno()
    if failed and number not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
        raise OSError(number, os.strerror(number), str(other))
    return not failed
