"""New inputs as batches: the way that an evaluation's examples take, without their truths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core.batch import Batch
from ..data.batching.bucketing import batch_edges, bucketed_order
from ..data.batching.settings import Batching
from ..data.source import Example, Skipped
from ..data.task import Item, RandomContext, Task
from ..models.long_texts import reads_unpadded

if TYPE_CHECKING:
    from ..inference.run import Run


_AT_ONCE = 16  # files that are held in memory


class Asked(NamedTuple):
    """A batch on the model's device, and for each of its items the number of the example that it is of."""

    of: list[int]
    batch: Batch


def asked(run: Run, task: Task, examples: Sequence[Example]) -> Iterator[Asked]:
    """Batches of what a task makes of examples in evaluation, those of like length together.

    Raises ValueError with an example's "where" for one that an evaluation would skip.
    """
    randomness, items, whose = RandomContext(np.random.default_rng(0), training=False), list[Item](), list[int]()
    for number, example in enumerate(examples):
        for made in task.items([example], run.tokenizer, randomness):
            if isinstance(made, Skipped):
                raise ValueError(f"{example['where']} is {made}, so there is nothing to say of it")
            items.append(made)
            whose.append(number)
    own, source = np.array([item.lengths for item in items], np.int64).T
    chosen, batching = bucketed_order(own, source), Batching() if run.recipe is None else run.recipe.batching
    pad = 0 if run.tokenizer is None else run.tokenizer.pad_id or 0
    most = 1 if reads_unpadded(run.model) else batching.max_rows
    for start, stop in pairwise(batch_edges(own[chosen], source[chosen], batching.tokens, most)):
        part = chosen[start:stop].tolist()
        batch = task.collate([items[i] for i in part], pad).batch({})
        yield Asked([whose[i] for i in part], batch.to(run.model.device))


def parts_of(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """Files in groups of which all are in memory at once."""
    return (paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE))


def parted(line: str, names: Sequence[str], where: str) -> list[str]:
    """The texts between the tabs of a line. Raises ValueError where it has not one for each name, or one is empty."""
    parts = line.split("\t", len(names) - 1)
    if len(parts) != len(names) or not all(part.strip() for part in parts):
        raise ValueError(f"{where} is {line[:60]!r}, and this run reads {'<tab>'.join(names)}")
    return parts
