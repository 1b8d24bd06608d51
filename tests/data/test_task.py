"""Tasks: items become padded batches, and values are shown as text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qkv.core.batch import IGNORE
from qkv.data.source import Skipped
from qkv.data.task import Item, RandomContext, Task, format_value, joined, sketch_lines


class Length(Task, kind="length-of-text"):
    def inputs(self, example, tokenizer, randomness):  # type: ignore[no-untyped-def]
        text = example["text"]
        return Item({"ids": np.array([ord(c) for c in text])}) if text else Skipped("empty")

    def labels(self, example, inputs):  # type: ignore[no-untyped-def]
        return np.float32(len(example["text"]))


def test_items_are_collated_with_padding_and_counts() -> None:
    randomness = RandomContext(np.random.default_rng(0), True)
    items = Length().items([{"text": "abc"}, {"text": ""}, {"text": "d"}], None, randomness)
    assert items[1] == "empty"
    batch = Length().collate([item for item in items if isinstance(item, Item)], pad=0)
    assert batch.arrays["ids"].tolist() == [[97, 98, 99], [100, 0, 0]]
    assert batch.labels is not None and batch.labels.tolist() == [3, 1]
    assert (batch.counts, batch.tokens, batch.slots) == ({"loss": 2}, 4, 6)


def test_labels_are_padded_with_ignored_ones_and_other_shapes_must_agree() -> None:
    assert joined([np.array([1, 2]), np.array([3])], "labels", IGNORE).tolist() == [[1, 2], [3, IGNORE]]
    with pytest.raises(ValueError, match=r"image of a batch must have one shape, not \(1, 2\) and \(1, 3\)"):
        joined([np.zeros((1, 2)), np.zeros((1, 3))], "image", 0)


def test_values_are_shown_as_text() -> None:
    assert format_value(torch.tensor(3), None, "label") == "3"
    assert format_value(torch.tensor([4, IGNORE]), None, "ids") == "4 –"
    assert format_value(torch.zeros(0, 4), None, "boxes") == "0 × 4 numbers" and sketch_lines(torch.zeros(0)) == []
    assert format_value(torch.tensor([[0.0, 1.0]]), None, "image") == "1 × 2 numbers from 0 to 1, mean 0.5"


def test_a_task_without_prediction_says_so() -> None:
    assert not Length().can_predict
    with pytest.raises(ValueError, match="the task 'length-of-text' does not predict on new inputs"):
        Length().predict(None, ["a"])


def test_a_task_names_the_options_of_its_prediction() -> None:
    class Shout(Length, kind="shout-of-text"):
        """Predicts with an option."""

    @Shout.predicts
    def predict(task: Shout, trained: None, inputs: list[str], *, threshold: float = 0.5) -> list[str]:
        return inputs

    assert Shout().predict_options == ("threshold",) and not Length().predict_options
