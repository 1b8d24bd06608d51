"""Parts of batches: rows, rows of examples that have several, counts and layouts."""

from __future__ import annotations

import pytest
import torch

from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.testing.batches import examples_in, part_of
from qkv.testing.report import NotChecked

IDS = torch.arange(12).reshape(4, 3)


def test_a_part_has_its_rows_labels_counts_and_tokens() -> None:
    labels = torch.tensor([[1, 2, 3], [4, 5, -100], [6, -100, -100], [7, 8, 9]])
    inputs = {"ids": IDS, "layout": Layout.from_lengths([3, 2, 1, 3])}
    texts = tuple({"text": str(i)} for i in range(4))
    part = part_of(Batch(inputs, labels, {"loss": 9}, 9, 12, texts=texts), 1, 3)
    assert part.inputs["ids"].equal(IDS[1:3]) and part.inputs["layout"].valid.sum(1).tolist() == [2, 1]
    assert part.counts == {"loss": 3} and part.tokens == 3 and [text["text"] for text in part.texts] == ["1", "2"]


def test_an_example_of_several_rows_keeps_them() -> None:
    rows = torch.tensor([[0, 1], [2, -1], [3, -1]])
    batch = Batch({"ids": IDS}, torch.tensor([1, 0, 1]), {"loss": 3}, targets={"rows": rows})
    part = part_of(batch, 1, 3)
    assert examples_in(batch) == 3 and part.inputs["ids"].equal(IDS[2:]) and part.labels is not None
    assert part.targets["rows"].tolist() == [[0, -1], [1, -1]] and part.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    "batch",
    [
        Batch({"ids": IDS, "scale": torch.ones(7)}, torch.ones(4), {"loss": 4}),
        Batch({"ids": IDS}, torch.ones(4), {"loss": 3}),
    ],
)
def test_what_cannot_be_split_is_not_checked(batch: Batch) -> None:
    with pytest.raises(NotChecked, match="so it can't be split"):
        part_of(batch, 0, 2)
