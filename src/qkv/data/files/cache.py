"""Cache in `$QKV_CACHE` or `~/.cache/qkv` of data derived from large files (decompressed text in UTF-8, line indices) and of
content that takes time to compute.

A cached file ends with its length, a checksum, and the state of its source file. If one of these does not match, because
the disk was full or the source has changed, it is rebuilt.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import mmap
import os
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from ...core import atomic
from ...core.spec import brief
from ..shuffle import text_hash

Bytes = bytes | mmap.mmap
Stamp = tuple[int, ...]
Chunks = Iterator[bytes]

IN_MEMORY = 32 << 20  # bytes; larger content is cached on disk
CHUNK = 1 << 20
_TRAILER = struct.Struct("<8s8sQ32s")  # mark, hash of the stamp, length of the content, SHA-256 of the content
_MARK = b"qkvkept1"


def stamp_of(path: Path) -> Stamp:
    """The state of a file: size, modification time, inode, and status change time, which can't be set back."""
    state = path.stat()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


def derived(path: Path, stamp: Stamp, what: str, derive: Callable[[], Chunks], small: int | None = None) -> Bytes:
    """The content that `derive` computes from a file: in memory up to `small` bytes (`IN_MEMORY`), else cached as `what`.

    Raises ValueError if the cache folder can't be used.
    """
    small = IN_MEMORY if small is None else small
    name, mark = f"{text_hash(str(path), what):016x}.{what}", text_hash(*map(str, stamp)).to_bytes(8, "little")
    cached = _cached(name, mark)
    if cached is not None:
        return cached
    chunks, head = derive(), bytearray()
    for chunk in chunks:
        head += chunk
        if len(head) > small:
            break
    else:
        return bytes(head)
    place = usable_folder() / name
    try:
        return _written(place, mark, itertools.chain([bytes(head)], chunks))
    except OSError as error:
        if (
            isinstance(error, PermissionError) and place.exists()
        ):  # Windows can't replace a file that a process has open
            return _unnamed(place.parent, derive())
        raise ValueError(
            f"the data derived from {brief(path)} can't be cached in {brief(place.parent)} ({error.strerror or error}); "
            "set the environment variable QKV_CACHE to a folder with more room"
        ) from None


def recall(what: str, *inputs: str) -> bytes | None:
    """The content that `remember` kept for the same inputs; None if there is none, or if it is damaged."""
    content = _cached(*_computed(what, inputs))
    return None if content is None else bytes(content)


def remember(content: bytes, what: str, *inputs: str) -> None:
    """Keep content that the inputs determine, unless the cache folder can't be used."""
    name, mark = _computed(what, inputs)
    with contextlib.suppress(OSError, ValueError):
        _written(usable_folder() / name, mark, iter([content]))


def _computed(what: str, inputs: tuple[str, ...]) -> tuple[str, bytes]:
    """The name and the mark of a file: together 128 bits of the inputs' hashes."""
    return f"{text_hash(what, *inputs):016x}.{what}", text_hash("mark", *inputs).to_bytes(8, "little")


def _written(place: Path, mark: bytes, chunks: Chunks) -> mmap.mmap:
    with atomic.replacing(place) as beside, beside.open("wb") as out:
        digest, length = hashlib.sha256(), 0
        for chunk in chunks:
            digest.update(chunk)
            length += out.write(chunk)
        out.write(_TRAILER.pack(_MARK, mark, length, digest.digest()))
    return mapped(place, length)


def _unnamed(folder: Path, chunks: Chunks) -> mmap.mmap:
    """The content in a temporary file, which is deleted when its last reader closes it."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.writelines(chunks)
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _cached(name: str, mark: bytes) -> Bytes | None:
    """The cached content, if it is complete and derived from the same state of the file."""
    place = folder() / name
    with contextlib.suppress(OSError), place.open("rb") as file:
        length = place.stat().st_size - _TRAILER.size
        if length <= 0 or _refused(place.parent):
            return None
        file.seek(length)
        *trailer, digest = _TRAILER.unpack(file.read(_TRAILER.size))
        if trailer == [_MARK, mark, length]:
            content = mapped(place, length)
            if _digest(content) == digest:
                return content
    return None


def _digest(content: mmap.mmap) -> bytes:
    digest = hashlib.sha256()
    for start in range(0, len(content), CHUNK):
        digest.update(content[start : start + CHUNK])
    return digest.digest()


def mapped(path: Path, length: int = 0) -> mmap.mmap:
    """A memory map of a file that is not empty, or of its first `length` bytes."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ)


# -- the folder -----------------------------------------------------------------------------------------------------


def folder() -> Path:
    """The cache folder, which may not exist yet; safe to delete at any time."""
    chosen = _chosen()
    return chosen if _writable(chosen) else _fallback()


def usable_folder() -> Path:
    """The cache folder, created if missing. Raises ValueError if other users could write to it."""
    usable = folder()
    try:
        usable.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ValueError(f"the cache folder {brief(usable)} can't be made ({error.strerror}); set QKV_CACHE") from None
    if (why := _refused(usable)) is not None:
        raise ValueError(
            f"the cache folder {brief(usable)} {why}, so its content can't be trusted; set the environment variable "
            "QKV_CACHE to a folder that you own"
        )
    return usable


def _chosen() -> Path:
    base = os.environ.get("QKV_CACHE")
    if base:
        return Path(base).expanduser()
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qkv"
    except RuntimeError:  # no home
        return _fallback()


def _fallback() -> Path:
    return Path(tempfile.gettempdir()) / f"qkv-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"


def _writable(path: Path) -> bool:
    """Whether a folder can be written to, or created."""
    there = next((place for place in (path, *path.parents) if place.exists()), None)
    return there is not None and there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _refused(path: Path) -> str | None:
    """Why the fallback folder, which another user could have created first, can't be trusted."""
    if path != _fallback() or not hasattr(os, "getuid"):
        return None
    state = path.lstat()
    if not stat.S_ISDIR(state.st_mode):
        return "is not a folder"
    if state.st_uid != os.getuid():
        return "belongs to another user"
    return "can be written by other users" if state.st_mode & 0o022 else None
