"""Refuse files that have to be read into memory whole and would not fit."""

from __future__ import annotations

from pathlib import Path

import psutil

from ...core.spec import brief

JSON = 7  # bytes in memory for each byte of JSON: 3 to 5 of objects (SQuAD, COCO), and two copies of the text
ROWS = 9  # and for each byte of a table that is kept as rows of short cells


def check_fits(path: Path, size: int, factor: int, advice: str) -> None:
    """Raise ValueError if `size` bytes of a file, decompressed, would take more memory than is free."""
    needed, free = size * factor, psutil.virtual_memory().available
    if needed > free:
        raise ValueError(
            f"{brief(path)} has {size / 2**20:,.0f} MiB, which take about {needed / 2**30:.1f} GiB in memory, and "
            f"{free / 2**30:.1f} GiB are free; {advice}"
        )
