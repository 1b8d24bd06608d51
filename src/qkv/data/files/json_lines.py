"""JSON Lines: one JSON value per line, and fields at dotted paths."""

from __future__ import annotations

import json
import re
from typing import Any

from ..source import Skipped
from .lines import Lines

_HALF = re.compile(r"\\u[dD][89a-fA-F]", re.ASCII)  # a JSON escape of half a surrogate pair


def json_line(lines: Lines, i: int) -> Any:
    text = lines[i]
    if not text.strip():
        return Skipped("empty")
    return json_object(text, f"{str(lines.path)!r}, line {i + 1:,},")


def json_object(text: str, where: str) -> Any:
    """The value of a line of JSON. Raises ValueError if it is invalid or contains half of a surrogate pair."""
    try:
        record = json.loads(text)
        if _HALF.search(text):  # an escape of a whole character has two halves
            json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise ValueError(f"{where} has half of a character ({half}), which is no text") from None
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{where} is not valid JSON: {error}") from None
    return record


def json_field(record: Any, path: str) -> str | None:
    """The text at a dotted path, or None."""
    found = json_value(record, path)
    return found if isinstance(found, str) else None


def json_value(record: Any, path: str) -> Any:
    """What stands at a dotted path, or None."""
    for name in path.split("."):
        record = record.get(name) if isinstance(record, dict) else None
    return record
