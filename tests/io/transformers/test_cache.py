"""The cache as transformers' `generate` uses it: its length, rows in another order, and fewer tokens."""

from __future__ import annotations

import pytest
import torch
from auto_models import IDS, llama

import qkv

pytestmark = pytest.mark.slow  # importing transformers' models takes seconds


@torch.no_grad()
def test_rows_are_reordered_repeated_and_shortened() -> None:
    from qkv.io.transformers.cache import QkvCache

    model = qkv.build(llama(), seed=0).eval()
    mine = QkvCache()
    assert (mine.get_seq_length(), mine.get_max_length(), len(mine), mine.is_initialized) == (0, -1, 0, False)
    mine.reorder_cache(torch.tensor([0]))  # nothing to reorder yet
    mine.cache = model.start(len(IDS))
    model.step(IDS, mine.cache)
    assert mine.is_initialized and mine.get_seq_length() == IDS.shape[1] and len(mine) == 2
    mine.reorder_cache(torch.tensor([2, 0, 1]))
    mine.crop(-2)
    assert mine.get_seq_length() == IDS.shape[1] - 2
    mine.crop(100)
    mine.batch_repeat_interleave(2)
    order = [2, 2, 0, 0, 1, 1]
    found = model.step(IDS[order, -2:], mine.cache)
    torch.testing.assert_close(found, model(IDS)[order, -1])
    mine.batch_select_indices(torch.tensor([1, 5]))
    assert mine.cache.batch_size == 2
