"""Checks of tasks pass for qkv's own and find wrong ones."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_recipes import RECIPES, prepared

from qkv.core.metrics.base import Metric
from qkv.data.batching.numpy_batch import NumpyBatch
from qkv.data.source import Example, Skipped
from qkv.data.task import Item, RandomContext, Task, TextTask
from qkv.data.tokenizers.protocol import Encoder
from qkv.testing import Report, check


def outcomes(report: Report) -> dict[str, str]:
    return {check.name: check.outcome for check in report.checks}


@pytest.mark.parametrize("kind", RECIPES)
def test_own_tasks_pass(kind: str) -> None:
    recipe, tokenizer, *_ = prepared(kind)
    assert recipe.task is not None
    examples = list(itertools.islice(recipe.data.examples("test"), 4))
    report = check(recipe.task, examples=examples, tokenizer=tokenizer)
    report.raise_for_failures()
    rows = isinstance(recipe.task, TextTask)
    assert outcomes(report)["batch = single"] == ("not checked" if rows else "passed"), report


class Counts(Task, kind="test-counts"):
    """Numbers and their parity, which the wrong tasks below change in one place."""

    needs_tokenizer: ClassVar[bool] = False
    fields: ClassVar[tuple[str, ...]] = ("numbers", "odd")

    def inputs(self, example: Example, tokenizer: Encoder | None, randomness: RandomContext) -> Item | Skipped:
        return Item({"ids": np.array(example["numbers"])})

    def labels(self, example: Example, inputs: Item) -> Any:
        return np.array(example["odd"])


class Careless(Counts, kind="mutant-careless"):
    """Accepts examples that lack fields."""

    def check_fields(self, example: Example) -> None:
        pass


class Restless(Counts, kind="mutant-restless-task"):
    """Draws from its own generator."""

    def inputs(self, example: Example, tokenizer: Encoder | None, randomness: RandomContext) -> Item:
        return Item({"ids": np.random.default_rng().permutation(np.arange(50))})


class Wearing(Counts, kind="mutant-wearing"):
    """Changes its examples."""

    def inputs(self, example: Example, tokenizer: Encoder | None, randomness: RandomContext) -> Item:
        example["numbers"] = sorted(example["numbers"], reverse=True)
        return Item({"ids": np.array(example["numbers"])})


class Relative(Counts, kind="mutant-relative"):
    """Subtracts the least number of all examples."""

    def inputs_of(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Sequence[Item] | Skipped]:
        least = min(min(example["numbers"]) for example in examples)
        return [[Item({"ids": np.array(example["numbers"]) - least})] for example in examples]


class Telling(Counts, kind="mutant-telling"):
    """Its inputs hold the labels."""

    def inputs(self, example: Example, tokenizer: Encoder | None, randomness: RandomContext) -> Item:
        return Item({"ids": np.array(example["numbers"])}, labels=np.array(example["odd"]))


class Trimming(Counts, kind="mutant-trimming"):
    """Cuts a batch to its shortest row."""

    def collate(self, items: Sequence[Item], pad: int) -> NumpyBatch:
        n = min(len(item.arrays["ids"]) for item in items)
        cut = [Item({"ids": item.arrays["ids"][:n]}, np.asarray(item.labels)[:n]) for item in items]
        return super().collate(cut, pad)


ONE = Metric()


class Adding(Counts, kind="mutant-adding"):
    """One metric for all evaluations."""

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return ONE


def examples() -> list[Example]:
    rows = ([3, 4, 9], [2, 5], [8, 7, 6, 5])
    return [{"numbers": row, "odd": [n % 2 for n in row]} for row in rows]


ROWS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=5)


@given(ROWS)
def test_the_right_one_passes(rows: list[list[int]]) -> None:
    report = check(Counts(), examples=[{"numbers": row, "odd": [n % 2 for n in row]} for row in rows])
    assert set(outcomes(report).values()) == {"passed"}, report


def test_without_examples_little_is_checked() -> None:
    report = check(Counts())
    assert outcomes(report)["fields"] == outcomes(report)["batch = single"] == "not checked"
    assert outcomes(report)["metric"] == "passed" and "give `examples`" in report.checks[1].reason


@pytest.mark.parametrize(
    "part, failure, reason",
    [
        (Careless(), "fields", "an example without 'numbers' is accepted, though `fields` has it"),
        (Restless(), "same items again", "items of evaluation differ for the same generator"),
        (Wearing(), "same items again", "making the items of evaluation changes the examples"),
        (Relative(), "alone = together", "depend on the examples beside it"),
        (Telling(), "inputs without labels", "`inputs` gives labels"),
        (Trimming(), "batch = single", "a batch counts 6 of 'loss', its examples 9"),
        (Adding(), "metric", "`metric` gives the same metric twice"),
    ],
    ids=lambda value: value.kind if isinstance(value, Task) else "",
)
def test_wrong_tasks_fail(part: Task, failure: str, reason: str) -> None:
    reasons = {failed.name: failed.reason for failed in check(part, examples=examples()).failures}
    assert reason in reasons.get(failure, ""), reasons
