"""Batches as NumPy arrays: their layouts, and the tensors that they become."""

from __future__ import annotations

import numpy as np
import torch

from qkv.core.batch import IGNORE
from qkv.data.batching.numpy_batch import NumpyBatch, PaddedLayout, count_labels


def test_a_batch_becomes_tensors_with_a_layout() -> None:
    batch = NumpyBatch(
        {"ids": np.array([[1, 2, 3], [4, 0, 0]])},
        {"ids": PaddedLayout([3, 1])},
        np.array([[2, 3, IGNORE], [5, IGNORE, IGNORE]]),
        {"depth": {"near": np.ones(2)}},
        tokens=4,
        slots=6,
    ).batch({"epoch": 1})
    assert torch.equal(batch.inputs["ids"], torch.tensor([[1, 2, 3], [4, 0, 0]]))
    assert list(batch.inputs["layout"].lengths) == [3, 1]
    assert torch.equal(batch.targets["depth"]["near"], torch.ones(2, dtype=torch.float64))
    assert batch.labels is not None and batch.labels.shape == (2, 3)
    assert (batch.position, batch.tokens, batch.slots) == ({"epoch": 1}, 4, 6)


def test_packed_documents_are_segments() -> None:
    layout = PaddedLayout([4], ((1, 3),)).layout(5)
    assert layout.segments is not None
    assert len(set(layout.segments[0, :4].tolist())) == 2


def test_integer_labels_count_without_ignored_ones_and_others_in_full() -> None:
    assert count_labels(np.array([[1, IGNORE], [IGNORE, 0]])) == 2
    assert count_labels(np.array([0.5, -100.0])) == 2
