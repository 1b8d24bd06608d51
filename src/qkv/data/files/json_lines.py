"""JSON files and JSON Lines (one JSON value per line), and fields at dotted paths."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...core.spec import brief
from ..file_kinds import other_kind
from ..source import Example, Skipped, Table
from ..tables import ComputedTable
from .cache import Stamp, stamp_of
from .compressed import suffix_of
from .encodings import unmarked
from .lines import Lines
from .memory_bound import JSON, check_fits

_BEGINNING = 1 << 10  # bytes
_LEADING = 20  # lines or entries that show what a file holds
_HALF = re.compile(r"\\u[dD][89a-fA-F]", re.ASCII)  # a JSON escape of half a surrogate pair


def json_table(lines: Lines, example: Callable[[Any, int], Example | Skipped]) -> Table:
    """The table of a JSONL file: `example(record, i)` for line i; empty lines are skipped."""

    def entry(i: int) -> Example | Skipped:
        text = lines[i]
        return example(json_object(text, f"{lines.where(i)},"), i) if text.strip() else Skipped("empty")

    return ComputedTable(len(lines), entry)


def json_entries(path: Path) -> list[Any] | None:
    """The entries of a JSON file that is one list, plain or compressed; None for a file with a value on each line."""
    return _entries(path.resolve(), stamp_of(path))


@lru_cache(maxsize=4)
def _entries(path: Path, stamp: Stamp) -> list[Any] | None:
    beginning = bytes(unmarked(path)[:_BEGINNING]).removeprefix(b"\xef\xbb\xbf").lstrip()
    if not beginning.startswith(b"["):
        return None
    try:
        value = json_file(path)
    except ValueError:  # lists on lines, perhaps; if not, the first line is told
        if suffix_of(path) == ".json":
            raise
        return None
    return value if isinstance(value, list) else None


def json_file(path: Path) -> Any:
    """The value in a JSON file, plain or compressed. Raises ValueError if it is invalid or too large for the memory."""
    content = unmarked(path)
    check_fits(path, len(content), JSON, "split it into several files, or use a machine with more memory")
    try:
        text = bytes(content).decode("utf-8-sig")
        return json_object(text, repr(str(path)))
    except UnicodeDecodeError as error:
        wrong = f"{brief(path)} is not valid JSON: it is not UTF-8, at byte {error.start:,}"
        raise ValueError(other_kind(path, content) or wrong) from None


def json_object(text: str, where: str) -> Any:
    """The value of a line of JSON. Raises ValueError if it is invalid, names a key twice in one object, or contains half of
    a surrogate pair."""
    try:
        record = _JSON.decode(text)
        if _HALF.search(text):  # an escaped surrogate pair has two halves
            json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise halved(error, where) from None
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply") from None
    except _RepeatedKey as error:
        raise ValueError(f"{where} has the key {brief(str(error))} twice in one object; remove one of them") from None
    except ValueError as error:
        raise ValueError(f"{where} is not valid JSON: {error}{_advice(text, error)}") from None
    return record


class _RepeatedKey(Exception):
    """An object that has a key twice, of which `json.loads` would keep the last."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedKey(next(name for name in names if names.count(name) > 1))
    return record


_JSON = json.JSONDecoder(object_pairs_hook=_once)


def _advice(text: str, error: ValueError) -> str:
    """What to do about invalid JSON, if its cause can be told."""
    place = error.pos if isinstance(error, json.JSONDecodeError) else 0
    before, rest = text[:place].rstrip(), text[place:].lstrip()
    if text.strip() in ("{", "["):
        return "; a value has to be on one line"
    if rest.startswith(("//", "/*", "#")) or (not before and text.lstrip().startswith(("//", "/*", "#"))):
        return "; JSON has no comments: remove them"
    if (before.endswith(",") and rest[:1] in ("]", "}")) or (rest[:1] == "," and rest[1:].lstrip()[:1] in ("]", "}")):
        return "; remove the comma before the closing bracket"
    if before and rest == ",":
        return "; remove the comma at the end of each line"
    if before.endswith("}") and rest.startswith("{"):
        if "\r" in text:
            return "; lines end with carriage returns: convert them (tr '\\r' '\\n' < FILE > NEW.jsonl)"
        return "; write one object per line"
    if rest.startswith("'"):
        return "; JSON has texts in \" marks, not in ': if Python wrote it, write it with json.dumps"
    if rest.startswith(("None", "True", "False")):
        return "; JSON has null, true and false: if Python wrote it, write it with json.dumps"
    return ""


def halved(error: UnicodeEncodeError, where: str) -> ValueError:
    """The error of a text with half of a surrogate pair."""
    half = f"\\u{ord(error.object[error.start]):04x}"
    return ValueError(f"{where} has half of a character ({half}), which is not valid text")


def json_field(record: object, path: str) -> str | None:
    """The text at a dotted path, or None."""
    value = json_value(record, path)
    return value if isinstance(value, str) else None


def json_value(record: object, path: str) -> Any:
    """The value at a dotted path, or None."""
    for name in path.split("."):
        record = record.get(name) if isinstance(record, dict) else None
    return record


def holds_json(path: Path, encoding: str = "utf-8") -> bool:
    """Whether a file of any name begins with a JSON object on a line, or is one list of objects."""
    lines, entries = Lines(path, encoding, False), list[Any]()
    with suppress(ValueError):
        first = next((line for i in range(min(len(lines), _LEADING)) if (line := lines[i].strip())), "")
        if first.startswith("{"):
            entries = [json_object(first, "")]
        elif first.startswith("["):
            entries = json_entries(path) or []
    return bool(entries) and all(isinstance(entry, dict) for entry in entries[:_LEADING])
