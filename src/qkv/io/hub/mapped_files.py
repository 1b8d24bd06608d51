"""Files mapped into memory: pages are read when they are first looked at, and copied when they are written to."""

from __future__ import annotations

import mmap
from pathlib import Path


class MappedFiles:
    """Memory maps of files, each made when it is first asked for. Writing to one changes no file."""

    def __init__(self) -> None:
        self._maps: dict[Path, mmap.mmap] = {}

    def map(self, path: Path, end: int) -> mmap.mmap:
        """The map of a file, whose first `end` bytes will be read. Raises ValueError if the file has fewer."""
        if path not in self._maps:
            with path.open("rb") as file:
                self._maps[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        if len(self._maps[path]) < end:
            raise ValueError(f"{path} was cut short while it was read")
        return self._maps[path]

    def forget(self, path: Path, begin: int, end: int) -> None:
        """Release the memory pages that lie within the bytes `begin` … `end` − 1, which were copied elsewhere."""
        page = mmap.PAGESIZE
        first, last = -(-begin // page) * page, end // page * page
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            self.map(path, end).madvise(mmap.MADV_DONTNEED, first, last - first)
