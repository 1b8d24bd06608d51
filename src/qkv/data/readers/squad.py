"""Extractive question answering data: SQuAD JSON files (v1.1 and v2) and JSONL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, NotRequired

from pydantic import FailFast, TypeAdapter
from typing_extensions import TypedDict

from ...core.json_files import Id, checked
from ...core.spec import brief
from ..files.compressed import bare_name
from ..files.encodings import open_text
from ..files.json_lines import holds_json, json_entries, json_object, json_value
from ..files.memory_bound import JSON, check_fits
from ..files.parquet import SUFFIX
from ..files.text_files import NamedRecords
from ..shuffle import text_hash
from ..source import Example, Skipped, Split, Table
from ..tables import ComputedTable


class Questions(NamedRecords, kind="questions"):
    """SQuAD's format in a `.json` file (v1.1 and v2), or one question in each line of a `.jsonl` or row of a `.csv`,
    `.tsv` or `.parquet` file.

    A line has a `context`, a `question`, its `answer` and its `start`, the index of the answer's first character in the
    context; the settings are the names of the fields, dotted if nested. A question that the context does not answer has
    the answer null; one with several true answers has lists of both. In place of `answer` and `start`, `answers` may hold
    lists `text` and `answer_start`, as the library `datasets` writes SQuAD, or a list of such objects.

    Whole articles are held out; in a JSONL file, contexts with all their questions.
    """

    expects: ClassVar[str] = "a JSON file like SQuAD's or a JSONL file"

    context: str = "context"
    question: str = "question"
    answer: str = "answer"
    start: str = "start"

    def open(self, split: Split) -> Table:
        path = self.paths(split)[0]
        name = bare_name(path).lower()
        if name.endswith(".json") and json_entries(path) is None:
            return _squad_table(path, self.encoding)
        if name.endswith((".json", ".jsonl", ".ndjson", ".csv", ".tsv", SUFFIX)) or holds_json(path, self.encoding):
            return self.records(path, self.example)
        raise ValueError(
            f"{brief(path)} is neither .json, .jsonl, .csv nor .tsv (plain or compressed), nor .parquet, by its name"
        )

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        return text_hash(example["article"] or example["context"])

    def example(self, record: object, where: str) -> Example | Skipped:
        """The example in a line's JSON value, or why it is skipped."""
        context, question = json_value(record, self.context), json_value(record, self.question)
        for name, value in ((self.context, context), (self.question, question)):
            if not isinstance(value, str):
                return Skipped(f"without a text {name!r}")
        answers, starts = (_listed(value) for value in self._spans(record, where))
        starts = [_whole(start) for start in starts]
        if answers == starts == [""]:  # of a CSV
            answers, starts = [], []
        if len(answers) != len(starts):
            raise ValueError(
                f"{where}: there are {len(answers)} answers in {brief(self.answer)} and {len(starts)} numbers in "
                f"{brief(self.start)}; there has to be one for each"
            )
        return answered_example(context, question, list(zip(answers, starts, strict=True)) or [("", 0)], where, "")

    def _spans(self, record: object, where: str) -> tuple[Any, Any]:
        """The answers of a line and their starts. Raises ValueError if it has no such field, since a question without an
        answer says so."""
        fields = record if isinstance(record, dict) else {}
        if self.answer.partition(".")[0] in fields:
            return json_value(record, self.answer), json_value(record, self.start)
        if fields.get("is_impossible") is True:
            return None, None
        if self.answer != "answer" or "answers" not in fields:
            raise ValueError(
                f"{where}: there is no field {brief(self.answer)}; it has {', '.join(fields)}. Name it with "
                "data.answer=FIELD and data.start=FIELD; a question without an answer has null"
            )
        answers = fields["answers"]
        if isinstance(answers, list) and answers and all(isinstance(one, dict) for one in answers):
            return [one.get("text") for one in answers], [one.get("answer_start") for one in answers]
        if isinstance(answers, dict):
            return answers.get("text"), answers.get("answer_start")
        return answers, fields.get("starts", json_value(record, self.start))


class _Paragraph(TypedDict):
    context: NotRequired[Any]  # checked when a question is read, so one can be skipped
    qas: list[Any]


class _Article(TypedDict):
    title: NotRequired[Id | None]
    paragraphs: Annotated[list[_Paragraph], FailFast()]


class _Squad(TypedDict):
    data: Annotated[list[_Article], FailFast()]


class _Answer(TypedDict):
    text: str
    answer_start: int


class _Question(TypedDict):
    question: str
    answers: NotRequired[list[_Answer]]
    is_impossible: NotRequired[bool | None]


_SQUAD, _QUESTION, _CONTEXT = TypeAdapter(_Squad), TypeAdapter(_Question), TypeAdapter(str)


class _Place(NamedTuple):
    """The indices of a SQuAD question."""

    article: int
    paragraph: int
    question: int


def _squad_table(path: Path, encoding: str) -> Table:
    """All questions of a SQuAD file, in order."""
    content = open_text(path, encoding)
    check_fits(path, len(content), JSON, "write one question per line (.jsonl), which is read line by line")
    where = f"{str(path)!r} is not a file like SQuAD's, data → paragraphs → qas"
    articles = checked(_SQUAD, json_object(bytes(content).decode("utf-8", "replace"), where), where)["data"]
    places = [
        _Place(i, j, k)
        for i, article in enumerate(articles)
        for j, paragraph in enumerate(article["paragraphs"])
        for k in range(len(paragraph["qas"]))
    ]

    def example(i: int) -> Example | Skipped:
        at = places[i]
        article = articles[at.article]
        paragraph = article["paragraphs"][at.paragraph]
        where = f"{str(path)!r}, article {at.article + 1}, paragraph {at.paragraph + 1}, question {at.question + 1}"
        question = checked(_QUESTION, paragraph["qas"][at.question], where)
        context = checked(_CONTEXT, paragraph.get("context"), f"{where}: its context")
        if not question.get("is_impossible") and "answers" not in question:
            raise ValueError(f"{where} has no 'answers', and is not marked as impossible (is_impossible)")
        answers = [] if question.get("is_impossible") else question["answers"]
        answered = [(answer["text"], answer["answer_start"]) for answer in answers] or [("", 0)]
        title = article.get("title")
        return answered_example(
            context, question["question"], answered, where, str(at.article if title is None else title)
        )

    return ComputedTable(len(places), example)


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _whole(value: Any) -> Any:
    """A whole number that is a text in a CSV, or that a data frame stores as 11.0."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    whole = value.strip().removesuffix(".0") if isinstance(value, str) else ""  # a data frame stores 11 as 11.0
    return int(whole) if whole.isdecimal() else value


def answered_example(
    context: str, question: str, answered: list[tuple[Any, Any]], where: str, article: str
) -> Example | Skipped:
    """An example with its answers and their starts. Raises ValueError if an answer is not at its start."""
    if not context.strip() or not question.strip():
        return Skipped("with an empty question or context")
    for answer, start in answered:
        if not isinstance(answer, str) or not isinstance(start, int) or isinstance(start, bool):
            raise ValueError(
                f"{where}: an answer is a text with the number of its first character, not {brief(answer)} at {brief(start)}"
            )
        if not 0 <= start <= len(context) - len(answer):
            raise ValueError(
                f"{where}: the answer {answer[:60]!r} starts at {start}, outside of the context, which has "
                f"{len(context)} characters"
            )
        if context[start : start + len(answer)] != answer:
            text = context[start : start + len(answer)]
            raise ValueError(f"{where}: at {start} the context has {text[:60]!r} and not the answer {answer[:60]!r}")
    answers, starts = zip(*answered, strict=True)
    return question_example(question, context, answers, starts) | {"article": article, "where": where}


def question_example(question: str, context: str, answers: tuple[str, ...], starts: tuple[int, ...]) -> Example:
    """An example of extractive question answering: answers with their first characters in the context."""
    return {
        "text": f"{question}\n{context}",
        "question": question,
        "context": context,
        "answers": answers,
        "starts": starts,
    }
