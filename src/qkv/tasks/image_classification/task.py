"""The task `image-classify`: the class of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from ...core.batch import Batch
from ...core.spec import nearest
from ...data.batching.numpy_batch import Array
from ...data.classes import class_name, sorted_classes
from ...data.media.augment import Mixing, mixed
from ...data.source import Example, OnError, Skipped, Source
from ...data.task import Item, RandomContext
from ...layers.embedding import Input
from ...metrics.base import Metric
from ...tokenizers.protocol import Encoder
from ..augmented_pictures import AugmentedTask
from .metric import ImageClassMetric


class ImageClassify(AugmentedTask, kind="image-classify"):
    """Pictures with a "label", the name of a class or its number. The head is an `image-classifier`.

    classes: their names, in the order of the head's scores; by default every label in the training data, sorted, numbers by
             size.
    mix:     two training pictures as one, by one of these for each pair: labels are then shares of the classes.
    on_error: for an example without a class, or with one that is not in the training data: "raise" an error that says where
             it is, or "skip" and count it.
    """

    renamed: ClassVar[dict[str, str]] = {"strange": "on_error"}
    tells_classes: ClassVar[bool] = True
    reads: ClassVar[str] = "image"  # the key of an example

    classes: tuple[str, ...] = ()
    mix: tuple[Mixing, ...] = ()
    on_error: OnError = "raise"

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        made = super().resolve(source, tokenizer, inputs)
        return made if made.classes else made.replace({"classes": self._classes(source)})

    def _classes(self, source: Source) -> tuple[str, ...]:
        """Those that the source has, or the classes in the training data, by their labels alone where a table knows these
        without reading pictures."""
        given: tuple[str, ...] | None = getattr(source, "classes", None)
        if given:
            return given
        labels = getattr(source.table("train"), "labels", None)
        if labels is None:
            labels = [example.get("label") for example in source.examples("train", shuffle=False)]
        found = {name for label in labels if (name := class_name(label)) is not None}
        if len(found) < 2:
            there = f"only the class {next(iter(found))!r}" if found else "no class"
            raise ValueError(
                f"the training pictures have {there}, and there is nothing to tell apart; give two at least, each in a "
                "folder of its own or named in a table"
            )
        return sorted_classes(found)

    @property
    def n_labels(self) -> int | None:
        return len(self.classes) or None

    def inputs_of(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Sequence[Item] | Skipped]:
        """The pictures alone, for prediction: `items` may mix pictures and labels."""
        stack = self.stacked(examples, randomness)
        made = dict[int, Sequence[Item] | Skipped](stack.skipped)
        for i, picture in zip(stack.kept, stack.pictures, strict=True):
            made[i] = [Item({"ids": picture}, tokens=self.tokens, example=examples[i])]
        return [made[i] for i in range(len(examples))]

    def items(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Item | Skipped]:
        stack = self.stacked(examples, randomness)
        pictures, made = stack.pictures, dict[int, Item | Skipped](stack.skipped)
        numbers = [self._label(examples[i]) for i in stack.kept]
        labels: Sequence[Any] = numbers
        good = [k for k, number in enumerate(numbers) if not isinstance(number, Skipped)]
        if self.mix and randomness.training and good:
            shares = np.eye(len(self.classes), dtype=np.float32)[[int(numbers[k]) for k in good]]
            pictures, labels = pictures.copy(), list(numbers)
            pictures[good], shares = mixed(pictures[good], shares, self.mix, randomness.generator)
            for k, row in zip(good, shares, strict=True):
                labels[k] = row
        for i, picture, label in zip(stack.kept, pictures, labels, strict=True):
            about = {} if randomness.training else examples[i]
            skipped = isinstance(label, Skipped)
            made[i] = label if skipped else Item({"ids": picture}, label, tokens=self.tokens, example=about)
        return [made[i] for i in range(len(examples))]

    def _label(self, example: Example) -> np.int64 | Skipped:
        name = class_name(example.get("label"))
        if name is None:
            return self._refused(example, f"the label is {example.get('label')!r}, and not a class", "without a class")
        if name not in self.classes:
            what = f"the class {name!r} is not in the training data; {nearest(name, self.classes)}"
            return self._refused(example, what, "of a class unseen in training")
        return np.int64(self.classes.index(name))

    def _refused(self, example: Example, what: str, reason: str) -> Skipped:
        if self.on_error == "skip":
            return Skipped(reason)
        raise ValueError(f"{example.get('where', 'an example')}: {what}; or skip such pictures by task.on_error=skip")

    def counts(self, labels: Array | None, targets: dict[str, Any]) -> dict[str, int]:
        """One label a picture, also where it is a row of shares."""
        return {"loss": 0 if labels is None else len(labels)}

    def preview(self, batch: Batch, row: int, tokenizer: Any) -> list[tuple[str, str]]:
        """The picture and its class; of two that are mixed, the share of each."""
        if batch.labels is None or batch.labels.ndim == 1:
            return super().preview(batch, row, tokenizer)
        shares = zip(self.classes, batch.labels[row].tolist(), strict=True)
        label = ", ".join(f"{share:.0%} {name}" for name, share in shares if share)
        return [*super().preview(replace(batch, labels=None), row, tokenizer), ("label", label)]

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return ImageClassMetric(self.classes)
