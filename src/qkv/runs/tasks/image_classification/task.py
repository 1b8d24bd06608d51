"""The task `image-classify`: image classification, and its prediction, which videos share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from ....core.batch import Batch
from ....core.metrics.base import Metric
from ....core.spec import brief
from ....data.batching.numpy_batch import Array
from ....data.classes import class_name, sorted_classes
from ....data.media.augment import Mixing, mixed
from ....data.source import Example, OnError, Skipped, Source
from ....data.task import Item, RandomContext
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....nn.layers.embedding import Input
from ..classes import class_predictions, known_class, skip_or_raise
from ..pictures import AugmentedTask
from ..prediction import Prediction, TrainedModel
from ..prediction_batches import in_parts
from .metric import ImageClassMetric


class ImageClassify(AugmentedTask, kind="image-classify"):
    """Pictures with a "label", the name of a class or its number. The head is an `image-classifier`.

    classes: their names, in the order of the head's scores; by default every label in the training data, sorted, numbers by
             size.
    mix:     augmentations that blend two training pictures, of which each pair gets one; labels are then shares of the
             classes.
    on_error: for an example without a class, or with one that is not in the training data: "raise" an error that says where
             it is, or "skip" and count it.
    """

    tells_classes: ClassVar[bool] = True
    outputs: ClassVar[str] = "classes"
    reads: ClassVar[str] = "image"  # the key of the picture in an example

    classes: tuple[str, ...] = ()
    mix: tuple[Mixing, ...] = ()
    on_error: OnError = "raise"

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        task = super().resolve(source, tokenizer, inputs)
        return task if task.classes else task.replace({"classes": self._classes(source)})

    def _classes(self, source: Source) -> tuple[str, ...]:
        """The classes of the source, or in the training data, without reading pictures if the table knows labels."""
        known: tuple[str, ...] | None = getattr(source, "classes", None)
        if known:
            return known
        labels = getattr(source.table("train"), "labels", None)
        if labels is None:
            labels = [example.get("label") for example in source.examples("train", shuffle=False)]
        names = {name for label in labels if (name := class_name(label)) is not None}
        if len(names) < 2:
            there = f"only the class {brief(next(iter(names)))}" if names else "no class"
            raise ValueError(
                f"the training pictures have {there}, and there is nothing to tell apart; give two at least, each in a "
                "separate folder or named in a table"
            )
        return sorted_classes(names)

    @property
    def n_labels(self) -> int | None:
        return len(self.classes) or None

    def inputs_of(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Sequence[Item] | Skipped]:
        """Return the pictures alone, for prediction."""
        stack = self.stacked(examples, randomness)
        pairs = zip(stack.kept, stack.pictures, strict=True)
        items = (Item({"ids": picture}, tokens=self.tokens, example=examples[i]) for i, picture in pairs)
        return [one if isinstance(one, Skipped) else [one] for one in stack.with_skipped(items)]

    def items(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Item | Skipped]:
        stack = self.stacked(examples, randomness)
        pictures, labels = stack.pictures, list[Any](self._label(examples[i]) for i in stack.kept)
        good = [k for k, label in enumerate(labels) if not isinstance(label, Skipped)]
        if self.mix and randomness.training and good:
            shares = np.eye(len(self.classes), dtype=np.float32)[[int(labels[k]) for k in good]]
            pictures = pictures.copy()
            pictures[good], shares = mixed(pictures[good], shares, self.mix, randomness.generator)
            for k, row in zip(good, shares, strict=True):
                labels[k] = row

        def item(i: int, picture: Array, label: Any) -> Item | Skipped:
            about = {} if randomness.training else examples[i]
            skipped = isinstance(label, Skipped)
            return label if skipped else Item({"ids": picture}, label, tokens=self.tokens, example=about)

        return stack.with_skipped(map(item, stack.kept, pictures, labels))

    def _label(self, example: Example) -> np.int64 | Skipped:
        if isinstance(missing := example.get("label"), Skipped):
            return missing
        if class_name(example.get("label")) is None:
            problem = f"the label is {brief(example.get('label'))}, and not a class"
            return skip_or_raise(example, self.on_error, problem, "without a class")
        return known_class(example, self.classes, self.on_error)

    def counts(self, labels: Array | None, targets: dict[str, Any]) -> dict[str, int]:
        """Count one label per picture, even if it is a row of shares."""
        return {"loss": 0 if labels is None else len(labels)}

    def preview(self, batch: Batch, row: int, tokenizer: TextDecoder | None) -> list[tuple[str, str]]:
        """Return the picture and its class, or the shares of two classes that are mixed."""
        if batch.labels is None or batch.labels.ndim == 1:
            return super().preview(batch, row, tokenizer)
        shares = zip(self.classes, batch.labels[row].tolist(), strict=True)
        label = ", ".join(f"{share:.0%} {name}" for name, share in shares if share)
        return [*super().preview(replace(batch, labels=None), row, tokenizer), ("label", label)]

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return ImageClassMetric(self.classes)


@ImageClassify.predicts
def predict(task: ImageClassify, trained: TrainedModel, paths: Sequence[str], **_: Any) -> Iterator[Prediction]:
    """Predict a `Classified` for each file. Raises ValueError if one can't be read."""
    for part in in_parts(paths):
        examples = [{task.reads: task.read(path), "where": path} for path in part]
        yield from class_predictions(task, task.classes, trained, part, examples)
