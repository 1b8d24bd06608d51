"""Labelled texts and text pairs from CSV, TSV or JSONL: sentiment, topics, entailment (NLI), similarity (STS)."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import model_validator

from ..files.records import Column, Format, RecordFormat, Records, open_records
from ..files.text_files import FilePerSplit
from ..source import Example, Skipped, Split, Table


class Labelled(FilePerSplit, kind="labelled"):
    """Rows of a `.csv`, `.tsv` or `.jsonl` file (plain or packed), or, in any other file, lines of a label and a text:

        1 a stirring , funny and finally transporting film

    text, pair, label, score: the columns: names where the file begins with a line of names (fields of JSON, dotted where
        they are nested), else numbers from 0. By default `text`, and `label` unless there is a `score` or a `pair`. A `pair`
        is the second text, a `score` a number.
    format:   what the file is, where its name doesn't say so.
    header:   whether the first line of a table holds names and is no example; by default what it looks like.
    quoted:   whether the cells of a TSV are quoted as in CSV; by default what they show, see `cells`.
    """

    expects: ClassVar[str] = "a file with a text and its label in each row"

    text: Column | None = None
    pair: Column | None = None
    label: Column | None = None
    score: Column | None = None
    format: Format | None = None
    header: bool | None = None
    quoted: bool | None = None

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        columns = self.columns
        if len({type(column) for column in columns.values()}) > 1:
            said = ", ".join(f"{name}={column!r}" for name, column in columns.items())
            raise ValueError(f"columns are all named or all numbered, not {said}")
        if any(isinstance(column, int) and column < 0 for column in columns.values()):
            raise ValueError("columns are numbered from 0")
        return self

    @property
    def columns(self) -> dict[str, Column]:
        """What is read of a row, and where it stands."""
        given = {"text": self.text, "pair": self.pair, "label": self.label, "score": self.score}
        alone = self.score is None and self.pair is None
        usual = {"text": "text", "label": "label"} if alone else {"text": "text"}
        found = {name: usual.get(name) if column is None else column for name, column in given.items()}
        return {name: column for name, column in found.items() if column is not None}

    @property
    def _reading(self) -> RecordFormat:
        return RecordFormat(self.format, self.encoding, self.header, self.quoted, self.strict)

    def notes(self) -> tuple[str, ...]:
        return (*self._reading.notes(self.paths("train")[0], self.columns.values()), *super().notes())

    def open(self, split: Split) -> Table:
        columns = self.columns
        return _Rows(open_records(self.paths(split)[0], tuple(columns.values()), self._reading), columns)


class _Rows:
    def __init__(self, records: Records, columns: dict[str, Column]) -> None:
        self._records, self._columns = records, columns

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, i: int) -> Example | Skipped:
        found: Example = {"where": self._records.where(i)}
        for name, column in self._columns.items():
            value = self._records.text(i, column) if name in ("text", "pair") else self._labelled(i, column)
            if isinstance(value, Skipped):
                return value
            found[name] = value
        return found

    def _labelled(self, i: int, column: Column) -> Any:
        """A label or a score as it stands; whole numbers and truths in JSON as they are written there."""
        value = self._records.get(i, column)
        if isinstance(value, str):
            value = value.strip()
        if value is None or value == "":
            return Skipped(f"without a {column!r}")
        return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int) else value
