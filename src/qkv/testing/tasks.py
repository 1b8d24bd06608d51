"""Checks of tasks: fields, items that are the same again, inputs without labels, batches against single examples."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.batch import IGNORE
from ..core.metrics.base import Metric
from ..data.source import Example, Skipped
from ..data.task import Item, RandomContext, Task, TextTask
from ..data.tokenizers.protocol import TextDecoder
from .digest import digest
from .report import NotChecked

NOTHING = "there are no examples to read; give `examples`, and the `tokenizer` if it reads text"


def task_checks(
    task: Task, examples: Sequence[Example], tokenizer: TextDecoder | None
) -> dict[str, Callable[[], None]]:
    checks = TaskChecks(task, examples, tokenizer)
    return {
        "fields": checks.fields,
        "same items again": checks.same_again,
        "alone = together": checks.alone,
        "inputs without labels": checks.inputs,
        "batch = single": checks.batch,
        "worker processes": checks.workers,
        "metric": checks.metric,
    }


class TaskChecks:
    """The checks of one task on a few examples."""

    def __init__(self, task: Task, examples: Sequence[Example], tokenizer: TextDecoder | None) -> None:
        self.task, self.examples, self.tokenizer = task, list(examples), tokenizer

    def _items(self, examples: Sequence[Example], randomness: RandomContext | None = None) -> list[Item | Skipped]:
        if not self.examples:
            raise NotChecked(NOTHING)
        if isinstance(self.task, TextTask):
            raise NotChecked("it makes rows of running text, and not an item of each example")
        return self.task.items(list(examples), self.tokenizer, randomness or _randomness())

    def _usable(self) -> list[Item]:
        usable = [item for item in self._items(self.examples) if not isinstance(item, Skipped)]
        assert usable, "every example is skipped"
        return usable

    def fields(self) -> None:
        """Examples that lack one of `fields` are refused in a sentence."""
        if not self.examples:
            raise NotChecked(NOTHING)
        if not self.task.fields:
            raise NotChecked("the task names no `fields` that it needs")
        for example in self.examples:
            self.task.check_fields(example)
        for name in self.task.fields:
            rest = {field: value for field, value in self.examples[0].items() if field != name}
            try:
                self.task.check_fields(rest)
            except ValueError:
                continue
            raise AssertionError(f"an example without {name!r} is accepted, though `fields` has it")

    def same_again(self) -> None:
        """The same seed gives the same items, and the examples stay as they are."""
        for training in (False, True):
            before = digest(self.examples)
            once = [_digest(item) for item in self._items(self.examples, _randomness(training))]
            again = [_digest(item) for item in self._items(self.examples, _randomness(training))]
            where = "training" if training else "evaluation"
            assert once == again, (
                f"items of {where} differ for the same generator; draw only from `randomness.generator`"
            )
            assert digest(self.examples) == before, f"making the items of {where} changes the examples"

    def alone(self) -> None:
        """In evaluation the items of an example do not depend on the examples beside it."""
        randomness = _randomness()
        together = [_digest(item) for item in self._items(self.examples, randomness)]
        if randomness.generator.bit_generator.state != _randomness().generator.bit_generator.state:
            raise NotChecked("it draws random numbers in evaluation, other ones for an example alone")
        alone = [_digest(item) for example in self.examples for item in self._items([example])]
        assert alone == together, "the items of an example depend on the examples beside it"

    def inputs(self) -> None:
        """`inputs_of` gives the items' arrays without labels."""
        items = self._items(self.examples)
        if type(self.task).inputs_of is Task.inputs_of and type(self.task).inputs is Task.inputs:
            raise NotChecked("it makes inputs and labels at once, and does not predict")
        inputs = self.task.inputs_of(self.examples, self.tokenizer, _randomness())
        flat = [one for group in inputs for one in ([group] if isinstance(group, Skipped) else group)]
        assert all(isinstance(one, Skipped) or one.labels is None for one in flat), "`inputs` gives labels"
        made = [item for item in items if not isinstance(item, Skipped)]
        compared = _kinds if self.task.corrupts else digest
        arrays = {compared(one.arrays) for one in flat if not isinstance(one, Skipped)}
        read = {name for one in flat if not isinstance(one, Skipped) for name in one.arrays}
        ours = [
            {n: x for n, x in item.arrays.items() if n != "target" or n in read} for item in made
        ]  # learned, not read
        assert all(compared(own) in arrays for own in ours), "the inputs of an item differ from what `inputs` returns"

    def batch(self) -> None:
        """A batch has what its examples have alone, padded: ids with the pad token, labels with −100."""
        items, pad = self._usable(), getattr(self.tokenizer, "pad_id", None) or 0
        batch, singles = self.task.collate(items, pad), [self.task.collate([item], pad) for item in items]
        for name in batch.counts:
            count = sum(single.counts[name] for single in singles)
            assert batch.counts[name] == count, f"a batch counts {batch.counts[name]} of {name!r}, its examples {count}"
        tokens = sum(single.tokens for single in singles)
        assert batch.tokens == tokens, f"a batch has {batch.tokens} tokens, and its examples {tokens}"
        assert batch.slots >= batch.tokens, f"a batch has {batch.tokens} tokens in {batch.slots} slots"
        if batch.labels is not None:
            start = 0
            for single in singles:
                assert single.labels is not None, "a batch has labels, and an example alone has none"
                own = batch.labels[start : start + len(single.labels)]
                assert _padded(own, single.labels, IGNORE), (
                    "labels of a batch differ from the labels of an example alone"
                )
                start += len(own)
        ids, start = batch.arrays["ids"], 0
        for single in singles:
            alone = single.arrays["ids"]
            own, start = ids[start : start + len(alone)], start + len(alone)
            assert _padded(own, alone, pad), "ids of a batch differ from the ids of an example alone"

    def workers(self) -> None:
        """A copy sent to a worker process makes the same items."""
        try:
            copied = pickle.loads(pickle.dumps(self.task))
        except Exception as error:
            raise AssertionError(f"it can't be sent to a worker process: {error}") from None
        if self.examples and not isinstance(self.task, TextTask):
            again = copied.items(self.examples, self.tokenizer, _randomness())
            same = [_digest(item) for item in again] == [_digest(item) for item in self._items(self.examples)]
            assert same, "a copy sent to a worker process makes other items"

    def metric(self) -> None:
        """Each evaluation gets its own metric, which has measured nothing."""
        first, second = (self.task.metric(self.tokenizer) for _ in range(2))
        assert isinstance(first, Metric), f"`metric` gives a value of type {type(first).__name__}, not a Metric"
        assert first is not second, "`metric` gives the same metric twice, so evaluations would add up"
        try:
            values = first.compute()
        except ValueError:
            return
        finite = [name for name, value in values.items() if math.isfinite(value.value)]
        assert not finite, f"its metric {finite[0]!r} is {values[finite[0]].value} though nothing was measured"


def _randomness(training: bool = False) -> RandomContext:
    return RandomContext(np.random.default_rng(5), training)


def _digest(item: Item | Skipped) -> str:
    if isinstance(item, Skipped):
        return digest(str(item))
    return digest([item.arrays, item.labels, item.targets, item.tokens])


def _padded(own: np.ndarray[Any, Any], alone: np.ndarray[Any, Any], fill: int) -> bool:
    """Whether `own` is `alone` with `fill` appended along its last axes."""
    within = tuple(slice(n) for n in alone.shape)
    if own.ndim != alone.ndim or not np.array_equal(own[within], alone, equal_nan=alone.dtype.kind == "f"):
        return False
    rest = np.ones(own.shape, bool)
    rest[within] = False
    return bool((own[rest] == fill).all())


def _kinds(arrays: Mapping[str, NDArray[Any]]) -> str:
    """The shapes and dtypes of arrays by name."""
    return digest({name: f"{array.shape} {array.dtype}" for name, array in arrays.items()})
