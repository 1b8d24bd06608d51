"""Batches of new inputs for prediction, built from a task's inputs alone, without labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..core.batch import Batch
from ..data.batching.bucketing import batch_edges, bucketed_order
from ..data.source import Example, Skipped
from ..data.task import Item, RandomContext, Task
from ..models.long_texts import reads_unpadded
from .prediction import TrainedModel

_AT_ONCE = 16  # files that are held in memory


class NumberedBatch(NamedTuple):
    """A batch on the model's device, and for each of its items the number of the example that it is of."""

    numbers: list[int]
    batch: Batch


def prediction_batches(trained: TrainedModel, task: Task, examples: Sequence[Example]) -> Iterator[NumberedBatch]:
    """Batches of a task's inputs for examples, those of like length together, processed as in evaluation.

    Raises ValueError with an example's "where" for one that an evaluation would skip.
    """
    randomness, items, numbers = RandomContext(np.random.default_rng(0), training=False), list[Item](), list[int]()
    for number, example in enumerate(examples):
        (inputs,) = task.inputs_of([example], trained.tokenizer, randomness)
        if isinstance(inputs, Skipped):
            raise ValueError(f"{example['where']} is {inputs}, so nothing can be predicted for it")
        items += inputs
        numbers += [number] * len(inputs)
    own, source = np.array([item.lengths for item in items], np.int64).T
    order = bucketed_order(own, source)
    pad = 0 if trained.tokenizer is None else trained.tokenizer.pad_id or 0
    most = 1 if reads_unpadded(trained.model) else trained.batching.max_rows
    for start, stop in pairwise(batch_edges(own[order], source[order], trained.batching.tokens, most)):
        part = order[start:stop].tolist()
        batch = task.collate([items[i] for i in part], pad).batch({})
        yield NumberedBatch([numbers[i] for i in part], batch.to(trained.model.device))


def in_parts(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """Files in groups of which all are in memory at once."""
    return (paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE))


def split_tabs(line: str, names: Sequence[str], where: str) -> list[str]:
    """The texts between the tabs of a line. Raises ValueError where it has not one for each name, or one is empty."""
    parts = line.split("\t", len(names) - 1)
    if len(parts) != len(names) or not all(part.strip() for part in parts):
        raise ValueError(f"{where} is {line[:60]!r}, and this run reads {'<tab>'.join(names)}")
    return parts
