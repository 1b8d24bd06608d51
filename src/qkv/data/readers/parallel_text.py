"""Parallel corpora for translation: two line-aligned files, or a TSV, CSV or JSONL file with both sides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import model_validator

from ...core.spec import brief, nearest
from ..files.compressed import suffix_of
from ..files.csv_header import check_names, short
from ..files.csv_tsv import Cells, no_record, notes_of
from ..files.documents import text_example
from ..files.json_lines import json_field, json_value
from ..files.lines import Lines
from ..files.records import FORMATS, NamedFormat
from ..files.text_files import TableFiles
from ..source import SPLITS, Example, Skipped, Split, Table
from ..tables import ComputedTable


class Pairs(TableFiles, kind="pairs"):
    """Sentence pairs: `source` and `target` files line by line, or a `path` to a `.tsv`, `.csv`, `.jsonl` or `.parquet`
    file.

    source_column, target_column: of a table, numbers from 0, or names if its first line has names; by default the columns
             named "source" and "target", or the only two columns. Of JSONL and Parquet, field names ("source" and
             "target" by default), dotted for nested fields ("translation.de").
    validation_references, test_references: further target files, with more references for each source.
    reference_columns: further target columns of a table, for the same purpose; the table of the test split must have
             them. In JSONL, a target may be a list of texts: the first is the target, and all are references. Training
             and likelihoods use the target alone.
    format:  the file format, if the name of the file doesn't show it; a file with a tab in its first line is TSV.
    header:  whether the first line of a table holds column names; by default detected.

    With `tag`, every source begins with `<target_language>`, so several corpora can train one model.
    """

    path_fields: ClassVar[tuple[str, ...]] = (
        *(f"{split}{name}" for split in ("", "validation_", "test_") for name in ("path", "source", "target")),
        "validation_references",
        "test_references",
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
    validation_references: tuple[str, ...] = ()
    test_references: tuple[str, ...] = ()
    reference_columns: tuple[int | str, ...] = ()
    format: NamedFormat | None = None
    header: bool | None = None
    source_language: str | None = None
    target_language: str | None = None
    tag: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.tag and not self.target_language:
            raise ValueError("tag puts the target language before every source, so target_language must be given")
        for split in SPLITS:
            source, target, path = (self.split_setting(name, split) for name in ("source", "target", "path"))
            prefix = "" if split == "train" else f"{split}_"
            if (source is None) != (target is None):
                given, missing = ("source", "target") if target is None else ("target", "source")
                raise ValueError(f"{prefix}{given} is given without {prefix}{missing}")
            if source and path:
                raise ValueError(f"give {prefix}source and {prefix}target, or {prefix}path, not both")
            if self._references(split) and not source:
                raise ValueError(
                    f"{prefix}references are further target files, so give {prefix}source and {prefix}target, too; "
                    "of a table, name further columns as reference_columns"
                )
        return self

    @property
    def special(self) -> tuple[str, ...]:
        return (f"<{self.target_language}>",) if self.tag else ()

    @property
    def tags(self) -> tuple[str, ...]:
        return self.special

    def paths(self, split: Split) -> tuple[Path, ...]:
        settings = (self.split_setting(name, split) for name in ("source", "target", "path"))
        paths = tuple(Path(path).expanduser() for path in settings if path)
        paths += tuple(Path(path).expanduser() for path in self._references(split))
        if not paths and split == "train":
            raise ValueError(
                "no training data: give data.source and data.target (two files), or data.path (one TSV, CSV, JSONL or "
                "Parquet file)"
            )
        return paths

    def _references(self, split: Split) -> tuple[str, ...]:
        return () if split == "train" else self.split_setting("references", split)

    def open(self, split: Split) -> Table:
        tag = f"<{self.target_language}> " if self.tag else ""
        paths = self.paths(split)
        if len(paths) > 1:
            source, target, *references = map(self.lines, paths)
            return _aligned(source, target, references, tag)
        form = self._form(paths[0])
        if form == "jsonl" or form == "parquet":
            fields = str(self.source_column or "source"), str(self.target_column or "target")
            return self.records(paths[0], lambda record, _: record_example(record, fields, tag))
        required = split == "test" or (split == "train" and not self.gives("test"))
        table = _Table(self.cells(paths[0], form), self, tag, required)
        first = self._table_cells("train")
        if split != "train" and first is not None:
            table.check_names(first)
        return table

    def notes(self) -> tuple[str, ...]:
        chosen = self.source_column, self.target_column, *self.reference_columns
        columns = [column for column in chosen if column is not None]
        header = True if any(isinstance(column, str) for column in columns) else self.header
        tables = (self._table_cells(split) for split in SPLITS if self.gives(split))
        return (*notes_of(tables, header, self.quoted, columns), *super().notes())

    def _table_cells(self, split: Split) -> Cells | None:
        """The rows of a split in a CSV or TSV; None if it is in another form."""
        paths = self.paths(split)
        form = self._form(paths[0]) if len(paths) == 1 else "jsonl"
        return self.cells(paths[0], form) if form == "csv" or form == "tsv" else None

    def _form(self, path: Path) -> NamedFormat:
        form = self.format or FORMATS.get(suffix_of(path))
        if form is None and self.sep:
            return "csv"
        if form is None and "\t" in self.lines(path)[0]:
            return "tsv"
        if form is None:
            raise ValueError(
                f"{brief(path)} is neither .tsv, .csv, .jsonl nor .parquet by its name, and its first line has no tab; give "
                "data.format or data.sep, or two files as data.source and data.target"
            )
        return form


def pair(source: str, target: str, tag: str = "", references: Sequence[str] = ()) -> Example | Skipped:
    """An example with a source and a target; skipped if a side is empty. With further `references`, all that are not empty
    become its "references", the target first."""
    source, target = source.strip(), target.strip()
    if not source or not target:
        return Skipped("with both sides empty" if not source and not target else "with one side empty")
    example: Example = {"source": tag + source, "target": target}
    if others := [text for reference in references if (text := reference.strip())]:
        example["references"] = [target, *others]
    return example


def record_example(record: object, fields: Sequence[str], tag: str = "") -> Example | Skipped:
    """The text (of one field) or the pair (of two fields) in a JSON record, or why it is skipped."""
    texts, references = list[str](), list[str]()
    for i, name in enumerate(fields):
        text = json_field(record, name)
        if text is None and i == 1:  # a target may be a list of references
            text, *references = _text_list(json_value(record, name))
        if text is None:
            return Skipped(f"without a text {name!r}")
        texts.append(text)
    return pair(texts[0], texts[1], tag, references) if len(texts) == 2 else text_example(texts[0])


def _text_list(value: Any) -> Sequence[Any]:
    """A JSON list of one or more texts; otherwise a list of None."""
    is_texts = isinstance(value, list) and value and all(isinstance(text, str) for text in value)
    return value if is_texts else [None]


def _aligned(source: Lines, target: Lines, references: Sequence[Lines], tag: str) -> Table:
    """The pairs of two files, line by line, and further references."""
    for other in (target, *references):
        if len(other) != len(source):
            raise ValueError(
                f"{brief(source.path)} has {len(source):,} lines but {brief(other.path)} has {len(other):,}; line n of one "
                "must translate line n of the other"
            )
    return ComputedTable(len(source), lambda i: pair(source[i], target[i], tag, [lines[i] for lines in references]))


class _Table:
    """A TSV or CSV table. `references_required` says whether a missing reference column is an error."""

    def __init__(self, cells: Cells, spec: Pairs, tag: str, references_required: bool) -> None:
        self._cells, self._tag, self._spec = cells, tag, spec
        columns = spec.source_column, spec.target_column
        named = any(isinstance(column, str) for column in (*columns, *spec.reference_columns))
        if named and spec.header is False:
            raise ValueError(f"data.header=false says that {brief(cells.path)} has no names; number its columns from 0")
        self._names = cells.names(True if named else spec.header)
        self._numbered = not (named or (columns == (None, None) and {"source", "target"} <= set(self._names)))
        if spec.strict:
            cells.check_width(self._names)
        self._width = cells.columns(self._names)
        self._columns = self._chosen(*columns)
        self._references = [
            self._place(column) for column in spec.reference_columns if references_required or self._has(column)
        ]

    def _chosen(self, source: int | str | None, target: int | str | None) -> tuple[int, int]:
        names = self._names
        if source is None and target is None and {"source", "target"} <= set(names):
            return names.index("source"), names.index("target")
        if self._width < 2:
            raise ValueError(f"{brief(self._cells.path)} has one column, and a pair has two; see data.format")
        if (source is None or target is None) and self._width > 2:
            there = f" ({', '.join(short(names))})" if names else ""
            one, other = names[-2:] if names else (0, 1)
            raise ValueError(
                f"{brief(self._cells.path)} has {self._width} columns{there}, so name the two to read: "
                f"data.source_column={one} data.target_column={other}"
            )
        first, second = (None if column is None else self._place(column) for column in (source, target))
        first = 1 - (second or 0) if first is None and second is not None else first or 0
        return first, 1 - first if second is None else second

    def check_names(self, first: Cells) -> None:
        """Check that columns that are not named are the same as in the training file. Raises ValueError."""
        if self._numbered:
            header = self._spec.header
            check_names(self._cells.path, self._names, first.path, first.names(header), self._columns)

    def _has(self, column: int | str) -> bool:
        return column in self._names if isinstance(column, str) else 0 <= column < self._width

    def _place(self, column: int | str) -> int:
        if isinstance(column, str):
            if self._names.count(column) > 1:
                raise ValueError(
                    f"{brief(self._cells.path)} has {self._names.count(column)} columns {brief(column)}; rename one, "
                    "or number the columns from 0"
                )
            if column not in self._names:
                raise ValueError(
                    f"{brief(self._cells.path)} has no column {brief(column)}; {nearest(column, short(self._names))}"
                )
            return self._names.index(column)
        if not 0 <= column < self._width:
            raise ValueError(f"{brief(self._cells.path)} has no column {column}: it has {self._width}, numbered from 0")
        return column

    def __len__(self) -> int:
        return len(self._cells) - bool(self._names)

    def __getitem__(self, i: int) -> Example | Skipped:
        cells = self._cells[i + bool(self._names)]
        if (lacking := no_record(cells, self._names, self._width)) is not None:
            return Skipped(lacking, f"{str(self._cells.path)!r}, line {self._cells.line(i + bool(self._names)):,}")
        if max(self._columns) >= len(cells):
            return Skipped("with one side missing")
        references = [cells[column] for column in self._references if column < len(cells)]
        return pair(cells[self._columns[0]], cells[self._columns[1]], self._tag, references)
