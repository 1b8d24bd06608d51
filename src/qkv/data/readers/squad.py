"""Extractive question answering data: SQuAD JSON files (v1.1 and v2) and JSONL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from ...core.shuffle import text_hash
from ..files.compressed import bare_name
from ..files.encodings import open_text
from ..files.json_lines import json_line, json_value
from ..files.lines import Lines
from ..files.text_files import FilePerSplit
from ..source import Example, Skipped, Split, Table


class Questions(FilePerSplit, kind="questions"):
    """SQuAD's format in a `.json` file (v1.1 and v2), or one question a line in a `.jsonl` file.

    A line has a `context`, a `question`, its `answer` and its `start`, the character of the context that the answer begins
    with; the names are those of the fields, dotted where they are nested. A question that the context does not answer has
    neither (or null); one with several true answers has lists of both.

    Whole articles are held out; in a JSONL file, contexts with all their questions.
    """

    expects: ClassVar[str] = "a JSON file like SQuAD's or a JSONL file"

    context: str = "context"
    question: str = "question"
    answer: str = "answer"
    start: str = "start"

    def open(self, split: Split) -> Table:
        path = self.paths(split)[0]
        name = bare_name(path)
        if name.endswith(".json"):
            return _Squad(path, self.encoding)
        if name.endswith((".jsonl", ".ndjson")):
            return _Rows(self.lines(path), self)
        raise ValueError(f"{str(path)!r} is neither .json nor .jsonl (nor one of them packed)")

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        return text_hash(example["article"] or example["context"])


class _Place(NamedTuple):
    """The indices of a SQuAD question."""

    article: int
    paragraph: int
    question: int


class _Squad:
    """All questions of a SQuAD file, in order."""

    def __init__(self, path: Path, encoding: str) -> None:
        self._path = path
        try:
            self._articles = json.loads(bytes(open_text(path, encoding)))["data"]
            self._places = [
                _Place(i, j, k)
                for i, article in enumerate(self._articles)
                for j, paragraph in enumerate(article["paragraphs"])
                for k in range(len(paragraph["qas"]))
            ]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{str(path)!r} is not a file like SQuAD's, data → paragraphs → qas: {error!r}") from None

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, i: int) -> Example | Skipped:
        at = self._places[i]
        article = self._articles[at.article]
        paragraph = article["paragraphs"][at.paragraph]
        asked = paragraph["qas"][at.question]
        where = (
            f"{str(self._path)!r}, article {at.article + 1}, paragraph {at.paragraph + 1}, question {at.question + 1}"
        )
        try:
            answers = [] if asked.get("is_impossible") else asked["answers"]
            found = [(answer["text"], answer["answer_start"]) for answer in answers]
            said = [*found, *([] if found else [("", 0)])]
            return _example(paragraph["context"], asked["question"], said, where, str(article.get("title", at.article)))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{where}: not a question like SQuAD's, {error!r}") from None


class _Rows:
    """One question a line."""

    def __init__(self, lines: Lines, spec: Questions) -> None:
        self._lines, self._spec = lines, spec

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, i: int) -> Example | Skipped:
        record, spec = json_line(self._lines, i), self._spec
        if isinstance(record, Skipped):
            return record
        where = f"{str(self._lines.path)!r}, line {i + 1:,}"
        context, question = json_value(record, spec.context), json_value(record, spec.question)
        for name, value in ((spec.context, context), (spec.question, question)):
            if not isinstance(value, str):
                return Skipped(f"without a text {name!r}")
        answers, starts = (_listed(json_value(record, name)) for name in (spec.answer, spec.start))
        if len(answers) != len(starts):
            raise ValueError(
                f"{where}: there are {len(answers)} answers in {spec.answer!r} and {len(starts)} numbers in {spec.start!r}; "
                "there has to be one for each"
            )
        return _example(context, question, list(zip(answers, starts, strict=True)) or [("", 0)], where, "")


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _example(context: str, question: str, said: list[tuple[Any, Any]], where: str, article: str) -> Example | Skipped:
    """Raises ValueError if an answer is not at its given position in the context."""
    if not context.strip() or not question.strip():
        return Skipped("with an empty question or context")
    for answer, start in said:
        if not isinstance(answer, str) or not isinstance(start, int) or isinstance(start, bool):
            raise ValueError(
                f"{where}: an answer is a text with the number of its first character, not {answer!r} at {start!r}"
            )
        if not 0 <= start <= len(context) - len(answer):
            raise ValueError(
                f"{where}: the answer {answer[:60]!r} is said to stand at {start}, outside of the context, which has "
                f"{len(context)} characters"
            )
        if context[start : start + len(answer)] != answer:
            there = context[start : start + len(answer)]
            raise ValueError(f"{where}: at {start} the context has {there[:60]!r} and not the answer {answer[:60]!r}")
    answers, starts = zip(*said, strict=True)
    return {
        "text": f"{question}\n{context}",
        "question": question,
        "context": context,
        "answers": answers,
        "starts": starts,
        "article": article,
        "where": where,
    }
