"""Checksums of the data and the tokenizer, by which a resumed training notices that they changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..data.source import SPLITS, Source, Table
from ..tokenizers.tokenizer import Tokenizer

SAMPLE = 32  # entries of a split that are looked at, evenly over it


def fingerprint(source: Source, tokenizer: Tokenizer | None, seed: int) -> dict[str, str]:
    """Of the data: the sizes of their files, each split's length and some of its examples. Of the tokenizer: all."""
    found = {"data": _hash(_of_data(source, seed))}
    return found if tokenizer is None else {**found, "tokenizer": _hash([tokenizer.to_json()])}


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
    """Some places of a table; the first ones where it is read in its order, its length being unknown until then."""
    step = 1 if getattr(table, "sequential", False) else max(len(table) // SAMPLE, 1)
    yield from range(0, min(len(table), SAMPLE * step), step)


def _sortable(value: Any) -> Any:
    """With strings for keys, whatever they are: numbers, None and pairs have no order among each other."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else f"{type(key).__name__} {key}": _sortable(v) for key, v in value.items()
        }
    return [_sortable(item) for item in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> str:
    """What JSON has no form for: arrays by their bytes, other things by their kind."""
    if isinstance(value, np.ndarray):
        return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return type(value).__name__


def _hash(parts: Iterator[str] | list[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()
