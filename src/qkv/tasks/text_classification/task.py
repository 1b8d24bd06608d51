"""The task `classify`: the class of a text or of two texts (sentiment, topics, inference, acceptability)."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from ...core.spec import nearest
from ...data.classes import class_name, sorted_classes
from ...data.source import Example, Skipped, Source
from ...data.task import Item
from ...layers.embedding import Input
from ...metrics.base import Metric
from ...tokenizers.protocol import Encoder
from ..whole_texts import Sentences, number
from .metric import ClassMetric

_DECIMALS = 20  # of which half stars may be classes; more are numbers
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

    classes: tuple[str, ...] = ()

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        if self.classes:
            return self._filled(inputs)
        found: set[str] = set()
        for example in source.examples("train", shuffle=False):
            name = class_name(example.get("label"))
            if name is None and _only_scored(example):
                raise ValueError(_other_kind(example))  # skipping would leave none
            if name is None:
                self._refused(example, _other_kind(example), _NO_CLASS)
            else:
                found.add(name)
        if len(found) < 2:
            there = f"only the class {next(iter(found))!r}" if found else "no class"
            raise ValueError(f"the training data have {there}, and there is nothing to tell apart; give two at least")
        if len(found) > _DECIMALS and all(number(name) is not None for name in found) and any("." in n for n in found):
            raise ValueError(
                f"the labels are {len(found):,} numbers such as {min(found)!r}, which are hardly classes; to learn numbers, "
                "give task=regress, and data.score in place of data.label"
            )
        return self._filled(inputs, classes=sorted_classes(found))

    @property
    def n_labels(self) -> int | None:
        return len(self.classes) or None

    def labels(self, example: Example, inputs: Item) -> Any | Skipped:
        name = class_name(example.get("label"))
        if name is None:
            return self._refused(example, _other_kind(example), _NO_CLASS)
        if name not in self.classes:
            what = f"the class {name!r} is not in the training data; {nearest(name, self.classes)}"
            return self._refused(example, f"{what}; give it examples to learn from", "of a class unseen in training")
        return np.int64(self.classes.index(name))

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return ClassMetric(self.classes)


def _only_scored(example: Example) -> bool:
    return "score" in example and "label" not in example


def _other_kind(example: Example) -> str:
    if _only_scored(example):
        return "there is a score and no label; task=regress learns scores"
    if "label" not in example:
        return "there is no label; name the column that holds it, as data.label=…"
    label = example["label"]
    what = f"the label is {label!r}, a {type(label).__name__}"
    return f"{what}; a class is a text or a whole number (task=regress learns numbers)"
