"""Parallel corpora for translation: two line-aligned files, or a TSV, CSV or JSONL file with both sides."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from ...core.spec import nearest
from ..files.compressed import bare_name
from ..files.csv_header import short
from ..files.csv_tsv import Cells
from ..files.json_lines import json_field, json_line
from ..files.lines import Lines
from ..files.text_files import TextFiles
from ..source import Example, Skipped, Split, Table

Format = Literal["csv", "tsv", "jsonl"]
_FORMATS: dict[str, Format] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


class Pairs(TextFiles, kind="pairs"):
    """Sentence pairs: `source` and `target` files line by line, or a `path` to a `.tsv`, `.csv` or `.jsonl` file.

    source_column, target_column: of a table numbers from 0, or names where its first line has names; where neither is given
             the two that there are, or those named "source" and "target". Fields of JSONL are names ("source" and "target"
             by default), dotted where they are nested ("translation.de").
    format:  what the file is, where its name doesn't say so; a file with a tab in its first line is TSV.
    header:  whether the first line of a table holds names and is no example; by default what it looks like.
    quoted:  whether the cells of a TSV are quoted as in CSV; by default what they show, see `cells`.

    With `tag`, every source begins with `<target_language>`, so that several corpora can train one model.
    """

    path_fields: ClassVar[tuple[str, ...]] = tuple(
        f"{split}{name}" for split in ("", "validation_", "test_") for name in ("path", "source", "target")
    )

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
    format: Format | None = None
    header: bool | None = None
    quoted: bool | None = None
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

    @property
    def tags(self) -> tuple[str, ...]:
        return self.special

    def paths(self, split: Split) -> tuple[Path, ...]:
        prefix = "" if split == "train" else f"{split}_"
        names = (getattr(self, f"{prefix}source"), getattr(self, f"{prefix}target"), getattr(self, f"{prefix}path"))
        found = tuple(Path(name).expanduser() for name in names if name)
        if not found and split == "train":
            raise ValueError(
                "no training data: give data.source and data.target (two files), or data.path (one TSV, CSV or JSONL file)"
            )
        return found

    def open(self, split: Split) -> Table:
        tag = f"<{self.target_language}> " if self.tag else ""
        paths = self.paths(split)
        if len(paths) == 2:
            return _TwoFiles(self.lines(paths[0]), self.lines(paths[1]), tag)
        form = self._form(paths[0])
        if form == "jsonl":
            names = str(self.source_column or "source"), str(self.target_column or "target")
            return _Jsonl(self.lines(paths[0]), *names, tag)
        return _Table(self._cells(paths[0], form), self, tag)

    def notes(self) -> tuple[str, ...]:
        paths = self.paths("train")
        form = self._form(paths[0]) if len(paths) == 1 else "jsonl"
        if form == "jsonl":
            return super().notes()
        named = isinstance(self.source_column, str) or isinstance(self.target_column, str)
        header = True if named else self.header
        return (*self._cells(paths[0], form).notes(header, self.quoted), *super().notes())

    def _cells(self, path: Path, form: Literal["csv", "tsv"]) -> Cells:
        return Cells(path, form, self.encoding, self.quoted, self.strict)

    def _form(self, path: Path) -> Format:
        form = self.format or _FORMATS.get(Path(bare_name(path)).suffix)
        if form is None and "\t" in self.lines(path)[0]:
            return "tsv"
        if form is None:
            raise ValueError(
                f"{str(path)!r} is neither .tsv, .csv nor .jsonl by its name, and its first line has no tab; give "
                "data.format, or two files as data.source and data.target"
            )
        return form


def pair(source: str, target: str, tag: str = "") -> Example | Skipped:
    source, target = source.strip(), target.strip()
    if not source or not target:
        return Skipped("with both sides empty" if not source and not target else "with one side empty")
    return {"source": tag + source, "target": target}


class _TwoFiles:
    def __init__(self, source: Lines, target: Lines, tag: str) -> None:
        self._source, self._target, self._tag = source, target, tag
        n, m = len(source), len(target)
        if n != m:
            raise ValueError(
                f"{str(source.path)!r} has {n:,} lines but {str(target.path)!r} has {m:,}; line n of one must translate "
                "line n of the other"
            )

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, i: int) -> Example | Skipped:
        return pair(self._source[i], self._target[i], self._tag)


class _Table:
    def __init__(self, cells: Cells, spec: Pairs, tag: str) -> None:
        self._cells, self._tag = cells, tag
        given = spec.source_column, spec.target_column
        named = any(isinstance(column, str) for column in given)
        if named and spec.header is False:
            raise ValueError(f"data.header=false says that {str(cells.path)!r} has no names; number its columns from 0")
        self._names = cells.names(True if named else spec.header)
        self._width = max(len(self._names), cells.width)
        self._columns = self._chosen(*given)
        self._only = given == (None, None) and self._width == 2

    def _chosen(self, source: int | str | None, target: int | str | None) -> tuple[int, int]:
        names = self._names
        if source is None and target is None and {"source", "target"} <= set(names):
            return names.index("source"), names.index("target")
        if self._width < 2:
            raise ValueError(f"{str(self._cells.path)!r} has one column, and a pair has two; see data.format")
        if (source is None or target is None) and self._width > 2:
            there = f" ({', '.join(short(names))})" if names else ""
            one, other = names[-2:] if names else (0, 1)
            raise ValueError(
                f"{str(self._cells.path)!r} has {self._width} columns{there}, so say which are read: "
                f"data.source_column={one} data.target_column={other}"
            )
        first, second = (None if column is None else self._place(column) for column in (source, target))
        first = 1 - (second or 0) if first is None and second is not None else first or 0
        return first, 1 - first if second is None else second

    def _place(self, column: int | str) -> int:
        if isinstance(column, str):
            if column not in self._names:
                raise ValueError(
                    f"{str(self._cells.path)!r} has no column {column!r}; {nearest(column, short(self._names))}"
                )
            return self._names.index(column)
        if not 0 <= column < self._width:
            raise ValueError(f"{str(self._cells.path)!r} has no column {column}: it has {self._width}, numbered from 0")
        return column

    def __len__(self) -> int:
        return len(self._cells) - bool(self._names)

    def __getitem__(self, i: int) -> Example | Skipped:
        cells = self._cells[i + bool(self._names)]
        if not cells:
            return Skipped("empty")
        if max(self._columns) >= len(cells):
            return Skipped("with one side missing")
        if self._only and len(cells) > 2:
            return Skipped("with more than two columns")
        return pair(cells[self._columns[0]], cells[self._columns[1]], self._tag)


class _Jsonl:
    def __init__(self, lines: Lines, source: str, target: str, tag: str) -> None:
        self._lines, self._source, self._target, self._tag = lines, source, target, tag

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
