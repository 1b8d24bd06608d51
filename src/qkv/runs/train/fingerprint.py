"""Checksums of the data and the tokenizer, so a resumed training notices changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...data.source import SPLITS, Source, Table
from ...data.tokenizers.tokenizer import Tokenizer

SAMPLE = 32  # entries of a split that are hashed, evenly spaced


def fingerprint(source: Source, tokenizer: Tokenizer | None, seed: int) -> dict[str, str]:
    """Return checksums by name: `data`, of the sizes of the files, each split's length and some of its examples, and
    `tokenizer`, of the whole tokenizer."""
    sums = {"data": _hash(_of_data(source, seed))}
    return sums if tokenizer is None else {**sums, "tokenizer": _hash([tokenizer.to_json()])}


def _of_data(source: Source, seed: int) -> Iterator[str]:
    for path in sorted(_files(source.to_dict())):
        yield f"{path.name} {path.stat().st_size}"
    for split in SPLITS:
        table = source.table(split, seed=seed)
        yield f"{split} {len(table)}"
        for place in _places(table):
            yield json.dumps(_sortable(table[place]), default=_plain, sort_keys=True)


def _files(value: Any) -> Iterator[Path]:
    """The files that a source's settings name."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _files(item)
    elif isinstance(value, str) and "\0" not in value and len(value) < 4096 and Path(value).expanduser().is_file():
        yield Path(value).expanduser()


def _places(table: Table) -> Iterator[int]:
    """Indices of the entries to hash: the first ones if the table can only be read in order, else evenly spaced."""
    step = 1 if getattr(table, "sequential", False) else max(len(table) // SAMPLE, 1)
    yield from range(0, min(len(table), SAMPLE * step), step)


def _sortable(value: Any) -> Any:
    """Convert dictionary keys to strings, because keys of different types can't be sorted."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else f"{type(key).__name__} {key}": _sortable(v) for key, v in value.items()
        }
    return [_sortable(item) for item in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> str:
    """A string for what JSON can't represent: the checksum of an array, the type of anything else."""
    if isinstance(value, np.ndarray):
        return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return type(value).__name__


def _hash(parts: Iterator[str] | list[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()
