"""Accuracy of tags, and F1 of the entities that they spell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ...core.batch import Batch
from ...metrics.base import Metric, MetricValue
from ...metrics.display import register
from ...metrics.entities import Scheme, agreement

register("accuracy", scale="fraction", higher_is_better=True)
register("entity_f1", "F1 of entities", "fraction", higher_is_better=True)
register("entity_precision", "Precision of entities", "fraction", higher_is_better=True, part=True)
register("entity_recall", "Recall of entities", "fraction", higher_is_better=True, part=True)


@dataclass
class Tagged:
    """A text whose rows may come in several batches. `found` has "" where no row has said anything yet."""

    words: Sequence[str]
    tags: Sequence[str]
    found: list[str]

    @property
    def told(self) -> tuple[list[str], list[str]]:
        """What was found and what is true, of the words in rows that came: an evaluation may end before a text does."""
        pairs = [(mine, true) for mine, true in zip(self.found, self.tags, strict=True) if mine]
        return [mine for mine, _ in pairs], [true for _, true in pairs]


class TagMetric(Metric):
    """Reads scores (B, T, tags) at the first token of each word: `batch.texts` say by `"at"` where these are (−1: nowhere),
    and by `"first"` which word they begin with.

    A word that no token is left of is taken for `O`. A tag that training lacked is never predicted, so it counts as an
    error. Words whose tag is "" are not counted.
    """

    def __init__(self, tags: tuple[str, ...], scheme: Scheme) -> None:
        self._names, self._scheme = tags, scheme
        self._all: dict[int, Tagged] = {}

    def update(self, outputs: Tensor, batch: Batch) -> None:
        best = outputs.argmax(-1).tolist()
        for row, example in zip(best, batch.texts, strict=True):
            words = example["words"]
            told = self._all.setdefault(id(words), Tagged(words, example.get("tags", ()), [""] * len(words)))
            first, at = example["first"], example["at"]
            told.found[first : first + len(at)] = [self._names[row[i]] if i >= 0 else "O" for i in at]

    def tags_of(self, words: Sequence[str]) -> list[str]:
        """What was found for the words of an example, the very object that its rows were made of."""
        return self._all[id(words)].found

    def compute(self) -> dict[str, MetricValue]:
        told = [one.told for one in self._all.values()]
        counted = [(mine, true) for row in told for mine, true in zip(*row, strict=True) if true]
        if not counted:
            return {}
        right = sum(mine == true for mine, true in counted)
        said = f"{len(counted):,} words"
        if self._scheme == "plain":
            unseen = sum(true not in self._names for _, true in counted)
            said += f", {unseen:,} of them with a tag that training lacked" if unseen else ""
        made = {"accuracy": MetricValue(right / len(counted), f"of {said}")}
        return made if self._scheme == "plain" else made | self._entities(told)

    def _entities(self, told: list[tuple[list[str], list[str]]]) -> dict[str, MetricValue]:
        agreed = agreement((mine for mine, _ in told), (true for _, true in told), self._scheme)
        how = f"{self._scheme}, micro average, {agreed.true:,} entities, {agreed.predicted:,} predicted"
        return {
            "entity_f1": MetricValue(agreed.f1, how),
            "entity_precision": MetricValue(agreed.precision, how),
            "entity_recall": MetricValue(agreed.recall, how),
        }

    def samples(self, count: int) -> list[dict[str, Any]]:
        shown = list(self._all.values())
        count = min(count, len(shown))
        return [_sample(shown[(2 * i + 1) * len(shown) // (2 * count)]) for i in range(count)]


def _sample(one: Tagged) -> dict[str, Any]:
    source = one.words if isinstance(one.words, str) else " ".join(one.words)
    return {"source": source, "output": marked(one.words, one.found), "target": marked(one.words, one.tags)}


def marked(words: Sequence[str], tags: Sequence[str]) -> str:
    """Words with their tags, those outside of entities alone; of symbols, whose words are a string, the tags as a string."""
    if isinstance(words, str):
        return "".join(tag or "-" for tag in tags)
    return " ".join(word if tag in ("O", "") else f"{word}/{tag}" for word, tag in zip(words, tags, strict=True))
