"""SnapKV caches: a prompt is compressed to what its last queries attend to; the rest is in test_h2o."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import qkv
from qkv.nn.attention import tap
from qkv.nn.kv_cache.kinds import FullCache, SnapKVCache


def test_the_last_queries_vote() -> None:
    spec = qkv.preset("llama", vocab_size=30, d_model=16, n_layers=2, n_heads=4, n_kv_heads=2)
    model = qkv.build(spec, dtype=torch.float64).eval()
    ids = torch.randint(0, 30, (2, 20), generator=torch.Generator().manual_seed(0))
    cache, full = model.start(2, cache=SnapKVCache(tokens=8, window=3, kernel=3)), model.start(2, cache=FullCache())
    with torch.no_grad(), tap.record_attention() as requests:
        model.step(ids, full)
        model.step(ids, cache)
    for layer in range(2):
        weights = tap.weights(requests[layer])[:, :, -3:].sum(2).unflatten(1, (2, 2)).sum(2)
        votes = F.max_pool1d(weights[..., :17], 3, 1, 1)
        for row in range(2):
            for head in range(2):
                kept = votes[row, head].argsort(dim=-1, descending=True, stable=True)[:5].sort().values
                kept = [*kept.tolist(), 17, 18, 19]
                held = cache.layers[layer].tensors()["k"][row, head]
                assert torch.equal(held, full.layers[layer].tensors()["k"][row, head, kept])


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="window=9 must be at most tokens=8, and kernel=7 must be odd"):
        SnapKVCache(tokens=8, window=9)
    with pytest.raises(ValueError, match="kernel=4 must be odd"):
        SnapKVCache(kernel=4)
