"""Multiple-choice questions from CSV, TSV or JSONL: a question, candidate answers, and the right one."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from ..files.records import Column, RecordFiles, Records
from ..source import Example, Skipped


class Choices(RecordFiles, kind="choices"):
    """Rows of a `.csv`, `.tsv`, `.jsonl` (plain or compressed) or `.parquet` file.

    text:    the column of the question, or of the text to be continued.
    choices: the columns of the candidates; in JSON, the field with a list of them, or several fields.
    answer:  the column with the right answer: its number from 0, its letter from A, or the candidate itself.
    format, header, quoted, sep, missing: see `RecordFiles`.
    """

    expects: ClassVar[str] = "a file with a question and its candidates in each row"

    text: Column = "text"
    choices: tuple[Column, ...] = Field(default=("choices",), min_length=1)
    answer: Column = "answer"

    def record_columns(self) -> tuple[Column, ...]:
        return self.text, *self.choices, self.answer

    def example(self, records: Records, i: int) -> Example | Skipped:
        text = records.text(i, self.text)
        if isinstance(text, Skipped):
            return text
        values = [records.get(i, column) for column in self.choices]
        listed = values[0] if len(values) == 1 and isinstance(values[0], list) else values
        answer = records.get(i, self.answer)
        if answer and answer not in listed:  # a candidate may be called "None"
            answer = self.truth(records, i, self.answer)
        if isinstance(answer, Skipped):
            return answer
        return choice_example(text, listed, answer, records.where(i))


def choice_example(text: str, candidates: Sequence[object], answer: object, where: str) -> Example | Skipped:
    """A question with its candidates and the number of the right one; skipped if one of these is missing or empty."""
    if (odd := next((item for item in candidates if isinstance(item, dict | list)), None)) is not None:
        return Skipped(f"with candidates that are no texts but {'objects' if isinstance(odd, dict) else 'lists'}")
    texts = [item.strip() for item in candidates if isinstance(item, str) and item.strip()]
    if len(texts) < len(candidates) or len(texts) < 2:
        return Skipped("without two candidates, or with an empty one")
    if answer is None or answer == "":
        return Skipped("without an answer")
    return {"text": text, "choices": texts, "answer": _number(answer, texts), "where": where}


def _number(answer: Any, candidates: list[str]) -> Any:
    """The number of the right candidate; the answer as it is in the file if it names no candidate."""
    if isinstance(answer, str):
        answer = answer.strip()
        if answer in candidates:
            return candidates.index(answer)
        if len(answer) == 1 and answer.upper() in string.ascii_uppercase:
            return string.ascii_uppercase.index(answer.upper())
        return int(answer) if answer.isdecimal() else answer
    return answer
