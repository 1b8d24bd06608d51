"""Plain and compressed files (.gz, .xz, .bz2, .zst) as bytes. A plain file is memory-mapped; a compressed one is
decompressed once into the cache, so it can be read at any position."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...core.optional_libraries import optional_library
from ...core.spec import brief
from .cache import CHUNK, Bytes, Stamp, derived, mapped, stamp_of

PACKED = (".gz", ".xz", ".bz2", ".zst")
_NAMES = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2", ".zst": "zstd"}
_BEGINNINGS = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ\0", ".bz2": b"BZh", ".zst": b"\x28\xb5\x2f\xfd"}
_ZSTD_TARS = (".tar.zst", ".tzst")
_ZSTD = ("compression.zstd", "backports.zstd")  # Python 3.14 and later, and the package for earlier versions


def bare_name(path: str | Path) -> str:
    """A file's name without its compression suffix: `a.tsv` for `a.tsv.gz`."""
    name = Path(path).name
    return name[: -len(packed)] if (packed := _packed(path)) else name


def suffix_of(path: str | Path) -> str:
    """Return the suffix of a file's format in lower case, without a compression suffix: `.csv` for `A.CSV.gz`."""
    return Path(bare_name(path)).suffix.lower()


def _packed(path: str | Path) -> str:
    """Return the compression suffix of a file's name in lower case; empty if it has none."""
    suffix = Path(path).suffix.lower()
    return suffix if suffix in PACKED else ""


def open_bytes(path: str | Path) -> Bytes:
    """The bytes of a file, decompressed if need be. Raises ValueError if it is missing, empty or broken."""
    path = existing(path)
    data = bytes_of(path.resolve(), stamp_of(path))
    if len(data) == 0:
        raise ValueError(f"{brief(path)} is empty")
    return data


def existing(path: str | Path) -> Path:
    """The expanded path of a file. Raises ValueError if it does not exist or is a folder."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise ValueError(f"there is no file {brief(path)}" if not path.is_dir() else f"{brief(path)} is a folder")
    return path


@lru_cache(maxsize=256)
def bytes_of(path: Path, stamp: Stamp) -> Bytes:
    if _packed(path):
        return derived(path, stamp, "inflated", lambda: _inflated(path))
    return mapped(path) if stamp[0] else b""


@contextmanager
def open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Open a .tar, compressed or not, to read its members in order. Raises tarfile.ReadError if it is damaged."""
    if not path.name.lower().endswith(_ZSTD_TARS):  # which tarfile doesn't read before Python 3.14
        with tarfile.open(path, "r|*") as archive:
            yield archive
        return
    opened, broken = _reader(path)
    try:
        with opened(path) as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as archive:
            yield archive
    except broken as error:
        raise tarfile.ReadError(str(error)) from None


def _inflated(path: Path) -> Iterator[bytes]:
    opened, broken = _reader(path)
    try:
        with opened(path) as packed:
            while chunk := packed.read(CHUNK):
                yield chunk
    except broken as error:
        packed = _packed(path)
        with path.open("rb") as file:
            plain = not file.read(6).startswith(_BEGINNINGS[packed])
        advice = f"; it is not compressed with {_NAMES[packed]}: rename it without {path.suffix}" if plain else ""
        raise ValueError(f"{brief(path)} is not a whole {_NAMES[packed]} file ({error}){advice}") from None


def _reader(path: Path) -> tuple[Callable[[Path], Any], tuple[type[Exception], ...]]:
    """The function that opens a compressed file, and the errors that it raises if the file is broken."""
    if _packed(path) == ".gz":
        return gzip.open, (gzip.BadGzipFile, EOFError, zlib.error)
    if _packed(path) == ".xz":
        return lzma.open, (lzma.LZMAError, EOFError)
    if _packed(path) == ".bz2":
        return bz2.open, (OSError, ValueError, EOFError)
    purpose = f"{str(path)!r} is compressed with zstd; reading it"
    library = optional_library(purpose, *_ZSTD)
    return library.open, (library.ZstdError, EOFError)
