"""Read text and JSON files that others wrote: of bounded size, with errors that name the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_text(path: Path, limit: int = 16 << 20) -> str:
    """Read a text file of bounded size. Raises ValueError naming the file where it is too large or not UTF-8."""
    if path.stat().st_size > limit:
        raise ValueError(f"{path} is larger than {limit >> 20} MiB, which no file of its kind is")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start})") from None


def read_json(path: Path) -> Any:
    """Read a JSON file of bounded size. Raises ValueError naming the file where it is too large or not valid."""
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
