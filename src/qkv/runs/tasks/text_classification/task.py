"""The task `classify`: text classification of one text or two (sentiment, topics, inference), and its prediction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from ....core.metrics.base import Metric
from ....core.metrics.baselines import Baseline, naive_bayes
from ....core.spec import brief
from ....data.classes import class_name, sorted_classes
from ....data.source import Example, Skipped, Source
from ....data.task import Item, Labels
from ....data.tokenizers.protocol import Encoder
from ....nn.layers.embedding import Input
from ..classes import class_predictions, known_class, split_pairs
from ..prediction import Prediction, TrainedModel
from ..samples import learned, learned_from, read_of
from ..whole_texts import Sentences, number
from .metric import ClassMetric, scores

_DECIMALS = 20  # decimal labels that may be classes, such as half stars; more are numbers to learn
_NO_CLASS = "whose label is no class"


class Classify(Sentences, kind="classify"):
    """classes: their names, in the order of the head's scores; by default every label in the training data, sorted, numbers
    by size. The head is a `sequence-classifier`, with a score for each.
    """

    recipe_defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "head": {"kind": "sequence-classifier"},
        "objective": {"kind": "labels"},
        "training": {"metric": "accuracy", "mode": "max"},
    }

    tells_classes: ClassVar[bool] = True
    outputs: ClassVar[str] = "classes"

    classes: tuple[str, ...] = ()

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        if self.classes:
            return self._filled(inputs)
        names: set[str] = set()
        for example in source.examples("train", shuffle=False):
            if isinstance(example.get("label"), Skipped):
                continue
            name = class_name(example.get("label"))
            if name is None and _only_scored(example):
                raise ValueError(_why_no_class(example))  # skipping would leave no example
            if name is None:
                self._refused(example, _why_no_class(example), _NO_CLASS)
            else:
                names.add(name)
        if len(names) < 2:
            there = f"only the class {brief(next(iter(names)))}" if names else "no class"
            raise ValueError(f"the training data have {there}, and there is nothing to tell apart; give two at least")
        if len(names) > _DECIMALS and all(number(name) is not None for name in names) and any("." in n for n in names):
            raise ValueError(
                f"the labels are {len(names):,} numbers such as {brief(min(names))}, which are hardly classes; to "
                "learn numbers, give task=regress, and data.score in place of data.label"
            )
        return self._filled(inputs, classes=sorted_classes(names))

    @property
    def n_labels(self) -> int | None:
        return len(self.classes) or None

    def labels(self, example: Example, inputs: Item) -> Labels | Skipped:
        if isinstance(missing := example.get("label"), Skipped):
            return missing
        if class_name(example.get("label")) is None:
            return self._refused(example, _why_no_class(example), _NO_CLASS)
        return known_class(example, self.classes, self.on_error)

    def baselines(self, source: Source, examples: Iterable[Example]) -> list[Baseline]:
        """Naive Bayes on the words of the texts."""
        index = {name: i for i, name in enumerate(self.classes)}
        training, known = (
            [(read_of(one), index[name]) for one in part if (name := class_name(one.get("label"))) in index]
            for part in (learned(source), examples)
        )
        if not training or not known:
            return []
        (texts, labels), (new, truth) = zip(*training, strict=True), zip(*known, strict=True)
        table = np.zeros((len(index), len(index)), np.int64)
        np.add.at(table, (list(truth), naive_bayes(texts, labels, new)), 1)
        return [Baseline("naive Bayes", scores(self.classes, table), f"on words, {learned_from(training)}")]

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return ClassMetric(self.classes)


@Classify.predicts
def predict(task: Classify, trained: TrainedModel, lines: Sequence[str], **_: Any) -> list[Prediction]:
    """Predict a `Classified` for each line TEXT or TEXT<tab>TEXT. Long texts are truncated."""
    texts, pairs = split_pairs(lines)
    sides = [texts] if pairs is None else [texts, pairs]
    examples = [dict(zip(("text", "pair"), row, strict=False)) for row in zip(*sides, strict=True)]
    for i, example in enumerate(examples, 1):
        if not all(text.strip() for text in example.values()):
            raise ValueError(f"text {i} is empty, so there is nothing to read")
    return class_predictions(task.replace(over_long="cut"), task.classes, trained, lines, examples)


def _only_scored(example: Example) -> bool:
    return "score" in example and "label" not in example


def _why_no_class(example: Example) -> str:
    if _only_scored(example):
        return "there is a score and no label; task=regress learns scores"
    if "label" not in example:
        return "there is no label; name the column that holds it, as data.label=…"
    label = example["label"]
    what = f"the label is {brief(label)}, a {type(label).__name__}"
    return f"{what}; a class is a text or a whole number (task=regress learns numbers)"
