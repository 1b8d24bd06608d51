"""Cache for what is derived from large files, in `$QKV_CACHE` or `~/.cache/qkv`: decompressed UTF-8 text and line indices.

A cached file ends with its length, a checksum, and the state of its source file. If one of these does not match, because a
disk was full or the source has changed, it is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from ...core import atomic
from ...core.shuffle import text_hash

Bytes = bytes | mmap.mmap
Stamp = tuple[int, ...]
Chunks = Iterator[bytes]

IN_MEMORY = 32 << 20  # bytes: what is larger lives on disk
CHUNK = 1 << 20
_TRAILER = struct.Struct("<8s8sQ32s")  # mark, hash of the stamp, length of the content, SHA-256 of the content
_MARK = b"qkvkept1"


def stamp_of(path: Path) -> Stamp:
    """The state of a file: size, modification time, inode, and status change time, which can't be set back."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def kept(path: Path, stamp: Stamp, what: str, made: Callable[[], Chunks], small: int | None = None) -> Bytes:
    """The content that `made` derives from a file: in memory up to `small` bytes (`IN_MEMORY`), else cached as `what`.

    Raises ValueError if the cache folder can't be used.
    """
    small = IN_MEMORY if small is None else small
    name, mark = f"{text_hash(str(path), what):016x}.{what}", text_hash(*map(str, stamp)).to_bytes(8, "little")
    chunks, found = None, _found(name, mark)
    if found is not None:
        return found
    chunks, head = made(), bytearray()
    for chunk in chunks:
        head += chunk
        if len(head) > small:
            break
    else:
        return bytes(head)
    place = usable_folder() / name
    try:
        return _kept_as(place, mark, _after(bytes(head), chunks))
    except OSError as error:
        if isinstance(error, PermissionError) and place.exists():  # Windows replaces no file that a process has open
            return _unnamed(place.parent, made())
        raise ValueError(
            f"what is made of {str(path)!r} can't be kept in {str(place.parent)!r} ({error.strerror or error}); give a "
            "folder with more room in the environment variable QKV_CACHE"
        ) from None


def _kept_as(place: Path, mark: bytes, chunks: Chunks) -> mmap.mmap:
    with atomic.replacing(place) as beside, beside.open("wb") as out:
        digest, length = hashlib.sha256(), 0
        for chunk in chunks:
            digest.update(chunk)
            length += out.write(chunk)
        out.write(_TRAILER.pack(_MARK, mark, length, digest.digest()))
    return _mapped(place, length)


def _unnamed(folder: Path, chunks: Chunks) -> mmap.mmap:
    """The content in a temporary file, which is deleted when its last reader closes it."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.writelines(chunks)
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _after(head: bytes, rest: Chunks) -> Chunks:
    yield head
    yield from rest


def _found(name: str, mark: bytes) -> Bytes | None:
    """The cached content, if it is complete and derived from the same state of the file."""
    place = folder() / name
    with contextlib.suppress(OSError), place.open("rb") as file:
        length = place.stat().st_size - _TRAILER.size
        if length <= 0 or _refused(place.parent):
            return None
        file.seek(length)
        known, made_of, said, digest = _TRAILER.unpack(file.read(_TRAILER.size))
        if (known, made_of, said) == (_MARK, mark, length):
            content = _mapped(place, length)
            if _digest(content) == digest:
                return content
    return None


def _digest(content: mmap.mmap) -> bytes:
    digest = hashlib.sha256()
    for start in range(0, len(content), CHUNK):
        digest.update(content[start : start + CHUNK])
    return digest.digest()


def _mapped(path: Path, length: int = 0) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ)


def mapped(path: Path) -> mmap.mmap:
    """A memory map of a file that is not empty."""
    return _mapped(path)


# -- the folder -----------------------------------------------------------------------------------------------------


def folder() -> Path:
    """The cache folder, which may not exist yet; safe to delete at any time."""
    chosen = _chosen()
    return chosen if _writable(chosen) else _fallback()


def usable_folder() -> Path:
    """The cache folder, created if missing. Raises ValueError if other users could write to it."""
    found = folder()
    try:
        found.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ValueError(f"the cache folder {str(found)!r} can't be made ({error.strerror}); set QKV_CACHE") from None
    if (why := _refused(found)) is not None:
        raise ValueError(
            f"the cache folder {str(found)!r} {why}, so what it holds can't be trusted; give a folder of your own in the "
            "environment variable QKV_CACHE"
        )
    return found


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
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return "is not a folder"
    if found.st_uid != os.getuid():
        return "belongs to another user"
    return "can be written by other users" if found.st_mode & 0o022 else None
