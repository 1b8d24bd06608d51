"""Bug 4 of those that others shipped: window size."""

from __future__ import annotations

import pytest
import torch
from every import every_backend
from small import (
    ids,
    model,
    same,
)

from qkv.nn.attention.attend import attend
from qkv.nn.patterns.basic import causal, window


@every_backend
def test_bug_04_a_window_holds_as_many_tokens_as_it_says(backend: str) -> None:
    """`causal() & window(3)` is three tokens, itself included; value j is what a query that sees only j would give."""
    q = torch.zeros(1, 8, 1, 8, dtype=torch.float64)
    v = torch.eye(8, dtype=torch.float64)[None, :, None]
    seen = attend(q, q, v, pattern=causal() & window(3), backend=backend)[0, :, 0] > 0
    assert seen.sum(1).tolist() == [1, 2, 3, 3, 3, 3, 3, 3]
    assert seen[5].nonzero().flatten().tolist() == [3, 4, 5]
    both = attend(q, q, v, pattern=window(2), backend=backend)[0, :, 0] > 0
    assert both[4].nonzero().flatten().tolist() == [3, 4, 5]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_bug_04_a_window_cache_stays_causal(size: int) -> None:
    """What a ring has overwritten is not seen, what comes later is not either, wherever chunks cut it."""
    built = model("decoder", causal() & window(size), layers=1)
    tokens = ids(1, 14, seed=3)
    for chunk in (1, 2, 3, 4):
        cache, found = built.start(1), []
        for at in range(0, 14, chunk):
            with torch.no_grad():
                found.append(built.step(tokens[:, at : at + chunk], cache, all_positions=True))
        same(torch.cat(found, 1), built(tokens), what=f"window {size} in chunks of {chunk}")
        assert cache.nbytes <= 14 * 2 * 4 * 4 * 8
