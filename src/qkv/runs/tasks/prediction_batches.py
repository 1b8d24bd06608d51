"""Batches of new inputs for prediction, built from a task's inputs alone, without labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...core.batch import Batch
from ...core.metrics.base import model_outputs
from ...data.batching.bucketing import batch_edges, bucketed_order
from ...data.source import Example, Skipped
from ...data.task import Item, RandomContext, Task
from ...nn.models.long_texts import reads_unpadded
from .prediction import Line, TrainedModel

T = TypeVar("T")

_AT_ONCE = 16  # files in memory at once


class NumberedBatch(NamedTuple):
    """A batch on the model's device, and the number of the example that each of its items belongs to."""

    numbers: list[int]
    batch: Batch


def prediction_batches(trained: TrainedModel, task: Task, examples: Sequence[Example]) -> Iterator[NumberedBatch]:
    """Batch a task's inputs for examples, similar lengths together, processed as in evaluation.

    Raises ValueError, naming the example by its "where", for an example that an evaluation would skip.
    """
    randomness, items, numbers = RandomContext(np.random.default_rng(0), training=False), list[Item](), list[int]()
    for number, inputs in enumerate(task.inputs_of(examples, trained.tokenizer, randomness)):
        if isinstance(inputs, Skipped):
            raise ValueError(f"can't predict for {examples[number]['where']}, which is {inputs}")
        items += inputs
        numbers += [number] * len(inputs)
    own, source = np.array([item.lengths for item in items], np.int64).T
    order = bucketed_order(own, source)
    pad = 0 if trained.tokenizer is None else trained.tokenizer.pad_id or 0
    max_rows = 1 if reads_unpadded(trained.model) else trained.batching.max_rows
    for start, stop in pairwise(batch_edges(own[order], source[order], trained.batching.tokens, max_rows)):
        part = order[start:stop].tolist()
        batch = task.collate([items[i] for i in part], pad).batch({})
        yield NumberedBatch([numbers[i] for i in part], batch.to(trained.model.device))


def predict_examples(
    trained: TrainedModel, task: Task, examples: Sequence[Example], decode: Callable[[Any, Batch], Iterable[T]]
) -> list[T]:
    """Predict for examples that become one item each: run the model, and return what `decode(outputs, batch)` gives for
    each of them, in the order of the examples."""
    results: dict[int, T] = {}
    for numbers, batch in prediction_batches(trained, task, examples):
        results |= zip(numbers, decode(model_outputs(trained.model, batch), batch), strict=True)
    return [results[i] for i in range(len(examples))]


def in_parts(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split files into groups that fit in memory."""
    return (paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE))


def split_tabs(line: str, names: Sequence[str], where: str) -> list[str]:
    """Split a line at its tabs, one text for each name. Raises ValueError if there are fewer, or one is empty."""
    parts = list(line.parts) if isinstance(line, Line) else line.split("\t", len(names) - 1)
    if len(parts) != len(names) or not all(part.strip() for part in parts):
        raise ValueError(f"{where} is {line[:60]!r}, and this run reads {'<tab>'.join(names)}")
    return parts
