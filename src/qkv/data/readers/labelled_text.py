"""Labelled texts and text pairs from CSV, TSV or JSONL: sentiment, topics, entailment (NLI), similarity (STS)."""

from __future__ import annotations

from typing import ClassVar

from ..files.number_tables import DecimalMark
from ..files.records import Column, RecordFiles, Records
from ..source import Example, Skipped


class Labelled(RecordFiles, kind="labelled"):
    """Rows of a `.csv`, `.tsv`, `.jsonl` (plain or compressed) or `.parquet` file, or, in any other file, lines of a label
    and a text:

        1 a stirring , funny and finally transporting film

    text, pair, label, score: the columns: names if the file begins with a line of names (fields of JSON, dotted if
        nested), else numbers from 0. By default `text`, and `label` unless there is a `score` or a `pair`. A `pair` is the
        second text, a `score` a number.
    decimal: the decimal mark of scores in CSV and TSV, "." or ",".
    format, header, quoted, sep, missing: see `RecordFiles`.
    """

    expects: ClassVar[str] = "a file with a text and its label in each row"

    text: Column | None = None
    pair: Column | None = None
    label: Column | None = None
    score: Column | None = None
    decimal: DecimalMark = "."

    @property
    def columns(self) -> dict[str, Column]:
        """The columns that are read, by the field of the example that they become."""
        columns = {"text": self.text, "pair": self.pair, "label": self.label, "score": self.score}
        alone = self.score is None and self.pair is None
        defaults = {"text": "text", "label": "label"} if alone else {"text": "text"}
        columns = {name: defaults.get(name) if column is None else column for name, column in columns.items()}
        return {name: column for name, column in columns.items() if column is not None}

    def record_columns(self) -> tuple[Column, ...]:
        return tuple(self.columns.values())

    def example(self, records: Records, i: int) -> Example | Skipped:
        example: Example = {"where": records.where(i)}
        for name, column in self.columns.items():
            value = records.text(i, column) if name in ("text", "pair") else self.truth(records, i, column)
            if isinstance(value, Skipped):
                return value
            if isinstance(value, int):  # of JSON
                value = str(value).lower()
            if name == "score" and isinstance(value, str):
                value = value.replace(self.decimal, ".")
            example[name] = value
        return example
