"""Class labels and class predictions of texts, pictures, sounds and videos: the probability of each class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ...core.batch import Batch
from ...core.spec import brief, nearest
from ...data.classes import class_name
from ...data.source import Example, OnError, Skipped
from ...data.task import Task
from .prediction import Prediction, TrainedModel, parts_of
from .prediction_batches import predict_examples

_MOST = 5  # classes in a line


def skip_or_raise(example: Example, on_error: OnError, problem: str, reason: str) -> Skipped:
    """Skip an unusable example for a `reason`, or raise ValueError with the `problem`."""
    if on_error == "skip":
        return Skipped(reason)
    where = example.get("where", "an example")
    raise ValueError(f"{where}: {problem}; or skip such examples with task.on_error=skip")


def known_class(example: Example, classes: Sequence[str], on_error: OnError) -> np.int64 | Skipped:
    """Return the index of an example's class; an unknown class is skipped, or raises ValueError."""
    name = class_name(example["label"])
    if name in classes:
        return np.int64(classes.index(name))
    problem = f"the class {brief(name)} is not in the training data; {nearest(str(name), classes)}"
    return skip_or_raise(
        example, on_error, f"{problem}; give it examples to learn from", "of a class unseen in training"
    )


@dataclass(frozen=True)
class Classified:
    """The most probable class, and the probability of every class in descending order.

    For a multi-label model (`problem_type` on the Hub), each probability is that of the class being present.
    """

    label: str
    probabilities: dict[str, float]


def classified(names: Sequence[str], scores: Tensor, several: bool = False) -> list[Classified]:
    """Turn scores (B, classes) into probabilities of the named classes; each class by itself if `several` may apply."""
    probabilities = (scores.sigmoid() if several else scores.softmax(-1)).tolist()
    rows = (sorted(zip(names, row, strict=True), key=lambda pair: -pair[1]) for row in probabilities)
    return [Classified(row[0][0], dict(row)) for row in rows]


def class_predictions(
    task: Task, classes: Sequence[str], trained: TrainedModel, inputs: Sequence[str], examples: Sequence[Example]
) -> list[Prediction]:
    """Predict the class of each input, given the examples that were read from the inputs."""

    def decode(outputs: Tensor, batch: Batch) -> list[Classified]:
        return classified(classes, outputs)

    return predictions(inputs, predict_examples(trained, task, examples, decode))


def predictions(inputs: Sequence[str], results: Iterable[Classified]) -> list[Prediction]:
    """Make a `Prediction` from each input and its class."""
    pairs = zip(inputs, results, strict=True)
    return [Prediction(text, result, f"{likeliest(result)}\t{text}", vars(result)) for text, result in pairs]


def likeliest(result: Classified) -> str:
    """Format the most probable classes in one line, each with its probability."""
    return "  ".join(f"{name} {share:.3f}" for name, share in list(result.probabilities.items())[:_MOST])


def split_pairs(lines: Sequence[str]) -> tuple[Sequence[str], list[str] | None]:
    """Split lines that are all TEXT<tab>TEXT into texts and their pairs. Raises ValueError if only some are pairs."""
    split = [parts_of(line) for line in lines]
    widths = {len(parts) for parts in split}
    if widths <= {1}:
        return [parts[0] for parts in split], None
    if widths != {2}:
        raise ValueError("give texts, or TEXT<tab>TEXT for every one of them")
    return [parts[0] for parts in split], [parts[1] for parts in split]
