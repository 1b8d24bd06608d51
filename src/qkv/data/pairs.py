"""Parallel text: two files with one sentence a line, or one TSV or JSONL file with both sides, plain or gzip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from ..core.spec import nearest
from .files import Lines
from .holdout import FileSource
from .sources import Example, Skipped, Split, Table


class Pairs(FileSource, kind="pairs"):
    """Sentence pairs: `source` and `target` files line by line, or a `path` to a `.tsv` or `.jsonl` file.

    Columns of a TSV file are numbers from 0 (by default 0 and 1), or names when the first line is a header; fields of a
    JSONL file are names ("source" and "target" by default), dotted where they are nested ("translation.de").

    With `tag`, every source begins with `<target_language>`, so that several corpora can train one model.
    """

    source: str | None = None
    target: str | None = None
    validation_source: str | None = None
    validation_target: str | None = None
    test_source: str | None = None
    test_target: str | None = None
    path: str | None = None
    validation_path: str | None = None
    test_path: str | None = None
    source_column: int | str | None = None
    target_column: int | str | None = None
    source_language: str | None = None
    target_language: str | None = None
    tag: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.tag and not self.target_language:
            raise ValueError("tag puts the target language before every source, so target_language must be given")
        for a, b in (("source", "target"), ("validation_source", "validation_target"), ("test_source", "test_target")):
            if (getattr(self, a) is None) != (getattr(self, b) is None):
                given, missing = (a, b) if getattr(self, a) is not None else (b, a)
                raise ValueError(f"{given} is given without {missing}")
        for split in ("", "validation_", "test_"):
            if getattr(self, f"{split}source") and getattr(self, f"{split}path"):
                raise ValueError(f"give {split}source and {split}target, or {split}path, not both")
        return self

    @property
    def special(self) -> tuple[str, ...]:
        return (f"<{self.target_language}>",) if self.tag else ()

    def paths(self, split: Split) -> tuple[Path, ...]:
        prefix = "" if split == "train" else f"{split}_"
        names = (getattr(self, f"{prefix}source"), getattr(self, f"{prefix}target"), getattr(self, f"{prefix}path"))
        found = tuple(Path(name).expanduser() for name in names if name)
        if not found and split == "train":
            raise ValueError(
                "no training data: give data.source and data.target (two files), or data.path (one TSV or JSONL file)"
            )
        return found

    def open(self, split: Split) -> Table:
        tag = f"<{self.target_language}> " if self.tag else ""
        paths = self.paths(split)
        if len(paths) == 2:
            return _TwoFiles(paths[0], paths[1], tag)
        suffix = Path(paths[0].name.removesuffix(".gz")).suffix
        if suffix == ".tsv":
            return _Tsv(paths[0], self.source_column, self.target_column, tag)
        if suffix in (".jsonl", ".ndjson"):
            return _Jsonl(paths[0], str(self.source_column or "source"), str(self.target_column or "target"), tag)
        raise ValueError(f"{str(paths[0])!r} is neither .tsv nor .jsonl (nor one of them with .gz)")


def pair(source: str, target: str, tag: str = "") -> Example | Skipped:
    source, target = source.strip(), target.strip()
    if not source or not target:
        return Skipped("with both sides empty" if not source and not target else "with one side empty")
    return {"source": tag + source, "target": target}


class _TwoFiles:
    def __init__(self, source: Path, target: Path, tag: str) -> None:
        self._source, self._target, self._tag = Lines(source), Lines(target), tag
        n, m = len(self._source), len(self._target)
        if n != m:
            raise ValueError(
                f"{str(source)!r} has {n:,} lines but {str(target)!r} has {m:,}; line n of one must translate line n "
                "of the other"
            )

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, i: int) -> Example | Skipped:
        return pair(self._source[i], self._target[i], self._tag)


class _Tsv:
    def __init__(self, path: Path, source: int | str | None, target: int | str | None, tag: str) -> None:
        self._lines, self._tag = Lines(path), tag
        self._header = isinstance(source, str) or isinstance(target, str)
        self._columns = self._column(source, 0), self._column(target, 1)

    def _column(self, given: int | str | None, default: int) -> int:
        if not isinstance(given, str):
            return default if given is None else given
        names = self._lines[0].split("\t")
        if given not in names:
            raise ValueError(f"{str(self._lines.path)!r} has no column {given!r}; {nearest(given, names)}")
        return names.index(given)

    def __len__(self) -> int:
        return len(self._lines) - self._header

    def __getitem__(self, i: int) -> Example | Skipped:
        cells = self._lines[i + self._header].split("\t")
        if max(self._columns) >= len(cells):
            return Skipped("with one side missing")
        return pair(cells[self._columns[0]], cells[self._columns[1]], self._tag)


class _Jsonl:
    def __init__(self, path: Path, source: str, target: str, tag: str) -> None:
        self._lines, self._source, self._target, self._tag = Lines(path), source, target, tag

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, i: int) -> Example | Skipped:
        record = json_line(self._lines, i)
        if isinstance(record, Skipped):
            return record
        source, target = json_field(record, self._source), json_field(record, self._target)
        if source is None or target is None:
            missing = self._source if source is None else self._target
            return Skipped(f"without a text {missing!r}")
        return pair(source, target, self._tag)


def json_line(lines: Lines, i: int) -> Any:
    text = lines[i]
    if not text.strip():
        return Skipped("empty")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(lines.path)!r}, line {i + 1:,}, is not valid JSON: {error}") from None


def json_field(record: Any, path: str) -> str | None:
    """The text at a dotted path, or None."""
    found = json_value(record, path)
    return found if isinstance(found, str) else None


def json_value(record: Any, path: str) -> Any:
    """What stands at a dotted path, or None."""
    for name in path.split("."):
        record = record.get(name) if isinstance(record, dict) else None
    return record
