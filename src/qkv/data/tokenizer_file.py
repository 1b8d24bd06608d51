"""Reading a tokenizer.json that somebody else made, and writing one: nothing is executed, imported, fetched or unbounded."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tokenizers

from .pipelines import close_holes

FILE = "tokenizer.json"
LARGEST_FILE = 128 << 20  # bytes; the largest in use have some 35 MB
MOST_GROWTH = 64  # how many times longer replacements may make a text


def read(path: str | Path) -> str:
    """The content of a tokenizer.json, or of the one in a folder. Raises ValueError when there is none, or a pickle."""
    path = Path(path).expanduser()
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"there is no tokenizer at {str(path)!r}: give a {FILE}, or a folder with one")
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError(f"{str(path)!r} has {path.stat().st_size:,} bytes, more than any tokenizer")
    data = path.read_bytes()
    if data.lstrip()[:1] != b"{":
        raise ValueError(f"{str(path)!r} is not a {FILE}, which is a JSON object (and never a pickle)")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{str(path)!r} is not valid UTF-8") from None


def parse(text: str) -> tokenizers.Tokenizer:
    """The library's tokenizer. Raises ValueError for one that is broken, or made to exhaust memory."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError(f"it is not a JSON object but a {type(data).__name__}")
    for part in (data.get("normalizer"), data.get("decoder")):
        _refuse_growth(part)
    with said():
        raw = tokenizers.Tokenizer.from_str(text)
        ids = raw.get_vocab(with_added_tokens=True).values()
        if not ids:
            raise ValueError("its vocabulary is empty")
        if max(ids) > 2 * len(ids) + 1024:
            raise ValueError(f"it has an id {max(ids):,}, but only {len(ids):,} tokens")
        controls = [token.content for token in raw.get_added_tokens_decoder().values() if token.special]
        return close_holes(raw, controls)


def place(path: str | Path) -> Path:
    """Where a tokenizer is written: in a folder, or at a path that ends in .json."""
    path = Path(path).expanduser()
    return path if path.suffix == ".json" else path / FILE


def write(path: str | Path, text: str) -> Path:
    """Write to `place(path)`, whole or not at all; returns that path."""
    path = place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        return beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextlib.contextmanager
def said() -> Iterator[None]:
    """The library's bare exceptions, and its Rust panics, as a ValueError."""
    try:
        yield
    except BaseException as error:
        raise as_value_error(error) from None


def as_value_error(error: BaseException) -> BaseException:
    if type(error) is Exception or type(error).__name__ == "PanicException":
        return ValueError(" ".join(str(error).split())[:300])
    return error


def _refuse_growth(part: Any) -> None:
    """Refuse replacements that make a text much longer: a → aa, 40 times over, fits in a small file and in no memory."""
    factor = 1.0
    for step in _steps(part):
        new, pattern = step.get("content"), step.get("pattern")
        if step.get("type") == "Replace" and isinstance(new, str):
            old = pattern.get("String", "") if isinstance(pattern, dict) else ""
            factor *= max(1.0, len(new) / max(1, len(old)))
    if factor > MOST_GROWTH:
        raise ValueError(f"its replacements could make a text {factor:.3g} times as long")


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield part
    for value in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _steps(value)
