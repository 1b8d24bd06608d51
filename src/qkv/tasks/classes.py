"""Predictions of classes, of texts, pictures, sounds and videos: the likeliest class and the probability of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from ..data.source import Example
from ..data.task import Task
from ..metrics.base import model_outputs
from .prediction import Prediction, TrainedModel
from .prediction_batches import prediction_batches

_MOST = 5  # classes in a line


@dataclass(frozen=True)
class Classified:
    """The likeliest class, and the probability of every class, the likeliest first.

    Where a text may be of several classes (`problem_type` of a Hub model), each probability is of yes against no.
    """

    label: str
    probabilities: dict[str, float]


def classified(names: Sequence[str], scores: Tensor, several: bool = False) -> list[Classified]:
    """Scores (B, classes) as probabilities of classes of these names; `several` where each stands for itself."""
    shares = (scores.sigmoid() if several else scores.softmax(-1)).tolist()
    rows = (sorted(zip(names, row, strict=True), key=lambda one: -one[1]) for row in shares)
    return [Classified(row[0][0], dict(row)) for row in rows]


def class_predictions(
    task: Task, classes: Sequence[str], trained: TrainedModel, given: Sequence[str], examples: Sequence[Example]
) -> list[Prediction]:
    """The classes of inputs that were read as examples."""
    found: dict[int, Classified] = {}
    for numbers, batch in prediction_batches(trained, task, examples):
        found |= zip(numbers, classified(classes, model_outputs(trained.model, batch)), strict=True)
    return predictions(given, [found[i] for i in range(len(given))])


def predictions(inputs: Sequence[str], found: Iterable[Classified]) -> list[Prediction]:
    """A prediction for each input whose class is known."""
    pairs = zip(inputs, found, strict=True)
    return [Prediction(given, one, f"{likeliest(one)}\t{given}", vars(one)) for given, one in pairs]


def likeliest(one: Classified) -> str:
    """The likeliest classes in a line, each with its probability."""
    return "  ".join(f"{name} {share:.3f}" for name, share in list(one.probabilities.items())[:_MOST])


def split_pairs(lines: Sequence[str]) -> tuple[Sequence[str], list[str] | None]:
    """Texts, and what stands beside each where it is a pair. Raises ValueError where only some are pairs."""
    split = [line.split("\t") for line in lines]
    widths = {len(parts) for parts in split}
    if widths == {1}:
        return lines, None
    if widths != {2}:
        raise ValueError("give texts, or TEXT<tab>TEXT for every one of them")
    return [parts[0] for parts in split], [parts[1] for parts in split]
