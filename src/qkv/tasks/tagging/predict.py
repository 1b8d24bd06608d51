"""The words of a text with their tags, and the entities that these spell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...data.source import Example
from ...metrics.entities import entities, scheme_of
from ..asking import asked
from ..prediction import Prediction
from .metric import marked
from .task import Tag, places_of

if TYPE_CHECKING:
    from ...inference.run import Run


def tagged(
    run: Run, task: Tag, texts: Sequence[str], in_words: Callable[[str], Example] | None = None
) -> list[Prediction]:
    """Of each text its tags, one for each word; `fields` have the words too and, where tags spell entities, each of these
    with its type, its text and its words `start` … `stop` − 1.

    Words stand between white space, as the training data have them, unless `in_words` says which there are; of symbols, each
    is one.
    """
    cut = in_words or task.untagged
    examples: list[Example] = [{**cut(text), "where": f"text {number}"} for number, text in enumerate(texts, 1)]
    metric = task.metric(run.tokenizer)
    for _, batch in asked(run, task, examples):
        metric.evaluate(run.model, batch)
    return [
        _prediction(task, text, example, metric.tags_of(example["words"]))
        for text, example in zip(texts, examples, strict=True)
    ]


def _prediction(task: Tag, given: str, example: Example, tags: list[str]) -> Prediction:
    text, words = example["text"], example["words"]
    found: dict[str, Any] = {"words": list(words), "tags": tags}
    scheme = task.scheme or scheme_of(task.tags)
    if scheme != "plain":
        begins = places_of(text, words)
        found["entities"] = [
            {
                "type": one.type,
                "text": text[begins[one.start] : begins[one.stop - 1] + len(words[one.stop - 1])],
                "start": one.start,
                "stop": one.stop,
            }
            for one in entities(tags, scheme)
        ]
    return Prediction(given, tags, marked(words, tags), found)
