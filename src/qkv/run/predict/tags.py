"""The words of a text with their tags, and the entities that these spell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...data.judges.entities import entities, scheme_of
from ...data.judges.tags import marked
from ...data.sources import Example
from ...data.tasks.tag import Tag
from .asking import asked
from .prediction import Prediction

if TYPE_CHECKING:
    from ..load import Run


def tagged(run: Run, task: Tag, texts: Sequence[str]) -> list[Prediction]:
    """Of each text its tags, one for each word; `fields` have the words too and, where tags spell entities, each of these
    with its type, its text and its words `start` … `stop` − 1.

    Words stand between white space, as the training data have them; of symbols, each is one.
    """
    examples: list[Example] = [
        {**task.untagged(text), "where": f"text {number}"} for number, text in enumerate(texts, 1)
    ]
    judge = task.judge(run.tokenizer)
    for _, batch in asked(run, task, examples):
        judge.read(run.model, batch)
    return [
        _prediction(task, text, example["words"], judge.tags_of(example["words"]))
        for text, example in zip(texts, examples, strict=True)
    ]


def _prediction(task: Tag, text: str, words: Sequence[str], tags: list[str]) -> Prediction:
    found: dict[str, Any] = {"words": list(words), "tags": tags}
    scheme = task.scheme or scheme_of(task.tags)
    if scheme != "plain":
        found["entities"] = [
            {"type": one.type, "text": " ".join(words[one.start : one.stop]), "start": one.start, "stop": one.stop}
            for one in entities(tags, scheme)
        ]
    return Prediction(text, tags, marked(words, tags), found)
