"""Rows that are fed different numbers of tokens, and removed again."""

from __future__ import annotations

import pytest
import torch

import qkv
from qkv.generation.speculative.feed import feed
from qkv.nn.kv_cache.kinds import FullCache, PagedCache


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("how", [FullCache(ring=False), PagedCache(page=2)], ids=str)
@torch.no_grad()
def test_logits_match_each_row_alone(side, how) -> None:
    model = qkv.build(qkv.preset("gpt2", vocab_size=11, d_model=16, n_layers=2, n_heads=2), dtype=torch.float64).eval()
    cache = model.start(3, cache=how)
    texts: list[list[int]] = [[1, 2], [3, 4], [5, 6]]
    model.step(torch.tensor(texts), cache)
    for blocks, removed in (
        ([[1, 2, 3], [4], []], [1, 0, 0]),
        ([[7], [8, 9], [1, 2, 3]], [1, 2, 2]),
        ([[5, 5], [6], [7, 1]], [0, 0, 0]),
    ):
        logits = feed(model, cache, blocks, side)
        width = max(map(len, blocks))
        for b, block in enumerate(blocks):
            texts[b] += block
            if block:
                own = logits[b, width - len(block) :] if side == "left" else logits[b, : len(block)]
                assert torch.allclose(own, model(torch.tensor([texts[b]]))[0, -len(block) :])
            padding = width - len(block)
            columns = removed[b] + (padding if side == "right" and removed[b] else 0)
            texts[b] = texts[b][: len(texts[b]) - removed[b]]
            removed[b] = columns
        cache.rewind_rows(removed)
    assert cache.length <= 2 + 3 + 3 + 2
