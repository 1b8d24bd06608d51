"""The largest batch, by a recipe's limits and by batches that were seen."""

from __future__ import annotations

import torch

from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.data.batching.settings import Batching
from qkv.nn.cost.flops import BatchShape
from qkv.runs.planning.batch_shape import allowed, widest


def batch(rows: int, length: int, source: int = 0) -> Batch:
    ids, layout = torch.zeros(rows, length, dtype=torch.int64), Layout.full(length)
    if not source:
        return Batch({"ids": ids, "layout": layout})
    sources = torch.zeros(rows, source, dtype=torch.int64)
    return Batch({"ids": sources, "layout": Layout.full(source), "target": ids, "target_layout": layout})


def test_what_a_recipe_allows() -> None:
    batching = Batching(tokens=4096, max_length=128, context=100)
    assert allowed(batching, seq2seq=True) == BatchShape(16, 128, 128)
    assert allowed(batching, seq2seq=False) == BatchShape(40, 100)
    assert allowed(batching.replace(max_rows=3), seq2seq=False) == BatchShape(3, 100)


def test_a_full_batch_of_the_longest_rows_that_were_seen() -> None:
    batching = Batching(tokens=1000)
    assert widest([batch(5, 20), batch(2, 50), batch(9, 10)], batching) == BatchShape(20, 50)
    assert widest([batch(5, 20, 5), batch(2, 10, 30)], batching) == BatchShape(20, 20, 30)
    assert widest([batch(1, 2000)], batching) == BatchShape(1, 2000)
