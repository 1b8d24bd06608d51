"""Prediction of tags of words, and of the entities that these spell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...data.source import Example
from ...metrics.entities import entities, scheme_of
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import prediction_batches
from .metric import marked
from .task import Tag, places_of


@Tag.predicts
def predict(
    task: Tag,
    trained: TrainedModel,
    texts: Sequence[str],
    *,
    in_words: Callable[[str], Example] | None = None,
    **options: Any,
) -> list[Prediction]:
    """Of each text its tags, one for each word; `fields` have the words too and, where tags spell entities, each of these
    with its type, its text and its words `start` … `stop` − 1.

    Words stand between white space, as the training data have them, unless `in_words` says which there are; of symbols, each
    is one.
    """
    cut = in_words or task.untagged
    examples: list[Example] = [{**cut(text), "where": f"text {number}"} for number, text in enumerate(texts, 1)]
    metric = task.metric(trained.tokenizer)
    for _, batch in prediction_batches(trained, task, examples):
        metric.evaluate(trained.model, batch)
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
