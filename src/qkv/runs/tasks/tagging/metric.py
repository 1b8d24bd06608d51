"""Accuracy of tags, and F1 of the entities that they encode (token classification)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from ....core.batch import Batch
from ....core.metrics.base import Metric, MetricValue
from ....core.metrics.display import register
from ....core.metrics.entities import Scheme, agreement
from ....core.metrics.extremes import Extremes, Ranking
from ..samples import evenly

register("accuracy", scale="fraction", higher_is_better=True)
register("entity_f1", "F1 of entities", "fraction", higher_is_better=True)
register("entity_precision", "Precision of entities", "fraction", higher_is_better=True, part=True)
register("entity_recall", "Recall of entities", "fraction", higher_is_better=True, part=True)


@dataclass
class Tagged:
    """A text whose rows may come in several batches. `predicted` has "" for words in rows that have not come,
    and `probabilities` are the predicted tags' probabilities."""

    words: Sequence[str]
    tags: Sequence[str]
    predicted: list[str]
    probabilities: list[float]

    @property
    def compared(self) -> tuple[list[str], list[str]]:
        """The predicted and the true tags of the words in rows that came: an evaluation may end before a text does."""
        pairs = [(tag, true) for tag, true in zip(self.predicted, self.tags, strict=True) if tag]
        return [tag for tag, _ in pairs], [true for _, true in pairs]


class TagMetric(Metric):
    """Reads scores (B, T, tags) at the first token of each word. In `batch.texts`, `"at"` are the indices of these tokens
    (−1 for none), from the word `"first"` on.

    A word without a token is predicted as `O`. A tag that training lacked is never predicted, so it counts as an error.
    Words whose tag is "" are not counted.
    """

    def __init__(self, tags: tuple[str, ...], scheme: Scheme) -> None:
        self._names, self._scheme = tags, scheme
        self._all: dict[int, Tagged] = {}

    def update(self, outputs: Tensor, batch: Batch) -> None:
        best, sure = outputs.argmax(-1).tolist(), outputs.float().softmax(-1).amax(-1).tolist()
        for row, shares, example in zip(best, sure, batch.texts, strict=True):
            words = example["words"]
            text = self._all.setdefault(
                id(words), Tagged(words, example.get("tags", ()), [""] * len(words), [1.0] * len(words))
            )
            first, at = example["first"], example["at"]
            text.predicted[first : first + len(at)] = [self._names[row[i]] if i >= 0 else "O" for i in at]
            text.probabilities[first : first + len(at)] = [shares[i] if i >= 0 else 1.0 for i in at]

    def tags_of(self, words: Sequence[str]) -> list[str]:
        """Return the predicted tags of an example, whose "words" are the same object as in its rows."""
        return self._all[id(words)].predicted

    def probabilities_of(self, words: Sequence[str]) -> list[float]:
        """Return the probabilities of the tags of `tags_of`."""
        return self._all[id(words)].probabilities

    def scores(self, texts: Iterable[tuple[Sequence[str], Sequence[str], list[str]]]) -> dict[str, float]:
        """The metrics of other predictions: words, true and predicted tags of each text."""
        other = TagMetric(self._names, self._scheme)
        other._all = {i: Tagged(*text, []) for i, text in enumerate(texts)}
        return {name: one.value for name, one in other.compute().items()}

    def compute(self) -> dict[str, MetricValue]:
        compared = [one.compared for one in self._all.values()]
        counted = [(tag, true) for row in compared for tag, true in zip(*row, strict=True) if true]
        if not counted:
            return {}
        right = sum(tag == true for tag, true in counted)
        how = f"of {len(counted):,} words"
        if self._scheme == "plain":
            unseen = sum(true not in self._names for _, true in counted)
            how += f", {unseen:,} of them with a tag that training lacked" if unseen else ""
        values = {"accuracy": MetricValue(right / len(counted), how)}
        return values if self._scheme == "plain" else values | self._entities(compared)

    def confusions(self) -> list[tuple[str, str, int]]:
        pairs = (pair for one in self._all.values() for pair in zip(*one.compared, strict=True))
        counts = Counter((true, tag) for tag, true in pairs if true)
        return [(true, tag, count) for (true, tag), count in sorted(counts.items())]

    def _entities(self, compared: list[tuple[list[str], list[str]]]) -> dict[str, MetricValue]:
        agreed = agreement((tags for tags, _ in compared), (true for _, true in compared), self._scheme)
        how = f"{self._scheme}, micro average, {agreed.true:,} entities, {agreed.predicted:,} predicted"
        return {
            "entity_f1": MetricValue(agreed.f1, how),
            "entity_precision": MetricValue(agreed.precision, how),
            "entity_recall": MetricValue(agreed.recall, how),
        }

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [_sample(one) for one in evenly(list(self._all.values()), count)]

    def extremes(self) -> Extremes | None:
        """By the F1 of the entities of a text, or the share of its words with the right tag."""
        ranking = Ranking("accuracy" if self._scheme == "plain" else "entity_f1")
        for one in self._all.values():
            tags, true = one.compared
            if self._scheme == "plain":
                right = [tag == truth for tag, truth in zip(tags, true, strict=True) if truth]
                score, size = (sum(right) / len(right) if right else math.nan), len(right)
            else:
                agreed = agreement([tags], [true], self._scheme)
                size = agreed.true + agreed.predicted
                score = agreed.f1 if size else math.nan
            ranking.add(score, partial(_sample, one), size)
        return ranking.extremes()


def _sample(one: Tagged) -> dict[str, Any]:
    source = one.words if isinstance(one.words, str) else " ".join(one.words)
    return {"source": source, "output": marked(one.words, one.predicted), "target": marked(one.words, one.tags)}


def marked(words: Sequence[str], tags: Sequence[str]) -> str:
    """Format words with their tags, `word/TAG`, but for `O`; if the words are the symbols of a string, only the tags."""
    if isinstance(words, str):
        return "".join(tag or "-" for tag in tags)
    return " ".join(word if tag in ("O", "") else f"{word}/{tag}" for word, tag in zip(words, tags, strict=True))
