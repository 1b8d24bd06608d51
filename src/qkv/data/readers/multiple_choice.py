"""Multiple-choice questions from CSV, TSV or JSONL: a question, candidate answers, and which is right."""

from __future__ import annotations

import string
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from ..files.records import Column, Format, RecordFormat, Records, open_records
from ..files.text_files import FilePerSplit
from ..source import Example, Skipped, Split, Table


class Choices(FilePerSplit, kind="choices"):
    """Rows of a `.csv`, `.tsv` or `.jsonl` file (plain or packed).

    text:    the column of the question, or of what is to be gone on with.
    choices: the columns of the candidates; of JSON the field with the list of them, or several fields.
    answer:  the column that says which is right: its number from 0, its letter from A, or the candidate itself.
    format, header, quoted: of the file, as `labelled` has them.
    """

    expects: ClassVar[str] = "a file with a question and its candidates in each row"

    text: Column = "text"
    choices: tuple[Column, ...] = Field(default=("choices",), min_length=1)
    answer: Column = "answer"
    format: Format | None = None
    header: bool | None = None
    quoted: bool | None = None

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if len({type(column) for column in (self.text, *self.choices, self.answer)}) > 1:
            raise ValueError("columns are all named or all numbered")
        return self

    @property
    def _reading(self) -> RecordFormat:
        return RecordFormat(self.format, self.encoding, self.header, self.quoted, self.strict)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.text, *self.choices, self.answer

    def notes(self) -> tuple[str, ...]:
        return (*self._reading.notes(self.paths("train")[0], self.columns), *super().notes())

    def open(self, split: Split) -> Table:
        return _Rows(open_records(self.paths(split)[0], self.columns, self._reading), self)


class _Rows:
    def __init__(self, records: Records, source: Choices) -> None:
        self._records, self._source = records, source

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, i: int) -> Example | Skipped:
        text = self._records.text(i, self._source.text)
        if isinstance(text, Skipped):
            return text
        given = [self._records.get(i, column) for column in self._source.choices]
        listed = given[0] if len(given) == 1 and isinstance(given[0], list) else given
        candidates = [item.strip() for item in listed if isinstance(item, str) and item.strip()]
        if len(candidates) < len(listed) or len(candidates) < 2:
            return Skipped("without two candidates, or with an empty one")
        answer = self._records.get(i, self._source.answer)
        if answer is None or answer == "":
            return Skipped("without an answer")
        return {
            "text": text,
            "choices": candidates,
            "answer": _number(answer, candidates),
            "where": self._records.where(i),
        }


def _number(answer: Any, candidates: list[str]) -> Any:
    """Which candidate is meant; the answer as it stands where that is none of them."""
    if isinstance(answer, str):
        said = answer.strip()
        if said in candidates:
            return candidates.index(said)
        if len(said) == 1 and said.upper() in string.ascii_uppercase:
            return string.ascii_uppercase.index(said.upper())
        return int(said) if said.isdecimal() else said
    return answer
