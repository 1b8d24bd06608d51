"""Prediction of token classification: the tags of words in new texts, and the entities that they encode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....core.metrics.entities import entities, scheme_of
from ....data.source import Example
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
    """Predict the tags of each text, one per word; `fields` also have the words, the probability of each tag and, if
    tags encode entities, each entity with its type, its text and its words `start` … `stop` − 1.

    Texts are split into words by `in_words`, or else at white space; if the task is on symbols, each symbol is a word.
    """
    split = in_words or task.untagged
    examples: list[Example] = [{**split(text), "where": f"text {number}"} for number, text in enumerate(texts, 1)]
    metric = task.metric(trained.tokenizer)
    for _, batch in prediction_batches(trained, task, examples):
        metric.evaluate(trained.model, batch)
    return [
        _prediction(task, text, example, metric.tags_of(example["words"]), metric.probabilities_of(example["words"]))
        for text, example in zip(texts, examples, strict=True)
    ]


def _prediction(task: Tag, line: str, example: Example, tags: list[str], probabilities: list[float]) -> Prediction:
    text, words = example["text"], example["words"]
    fields: dict[str, Any] = {"words": list(words), "tags": tags, "probabilities": probabilities}
    scheme = task.scheme or scheme_of(task.tags)
    if scheme != "plain":
        begins = places_of(text, words)
        fields["entities"] = [
            {
                "type": one.type,
                "text": text[begins[one.start] : begins[one.stop - 1] + len(words[one.stop - 1])],
                "start": one.start,
                "stop": one.stop,
            }
            for one in entities(tags, scheme)
        ]
    return Prediction(line, tags, marked(words, tags), fields)
