"""The cache of sinks and a window: what it keeps, and at which positions."""

from __future__ import annotations

import pytest
import torch
from kv_caches import CPU, B, feed, numbers, started

from qkv.core.layout import Layout
from qkv.nn.kv_cache.kinds import FullCache, SinkCache


def test_sinks_and_a_window_keep_the_first_and_the_last_at_places_in_the_cache() -> None:
    cache, plain = started(SinkCache(sinks=2, window=3)), started(FullCache())
    for t in range(12):
        keys, wanted = feed(cache, 1, t)[0], feed(plain, 1, t)[0]
        kept = list(range(t + 1)) if t < 5 else [0, 1, t - 2, t - 1, t]
        assert torch.equal(keys, wanted[:, kept])
        assert cache.layers[0].layout.positions.flatten().tolist() == list(range(len(kept)))  # type: ignore[attr-defined]


def test_a_long_step_sees_itself_whole_and_what_there_is_room_for() -> None:
    cache = started(SinkCache(sinks=1, window=4))
    feed(cache, 3, 0)
    assert feed(cache, 3, 1)[0].shape[1] == 5  # one sink, one more of the old ones
    assert feed(cache, 9, 2)[0].shape[1] == 10
    assert feed(cache, 1, 3)[0].shape[1] == 5
    with pytest.raises(ValueError, match="has evicted tokens and can't rewind"):
        cache.rewind(1)


def test_padding_goes_before_sinks_do() -> None:
    """Rows of 2 and 5 tokens: each keeps its own first one."""
    cache, layout = started(SinkCache(sinks=1, window=3)), Layout.from_lengths([2, 5], side="left")
    k, _ = numbers(B, 5, 0)
    feed(cache, 5, 0, layout)
    for t in range(6):
        keys, _ = feed(cache, 1, 1 + t)
    assert torch.equal(keys[0, 0], k[0, 3]) and torch.equal(keys[1, 0], k[1, 0])
    assert cache.layers[0].layout.positions[..., 0].tolist() == [[0, 1, 2, 3]] * 2  # type: ignore[attr-defined]


def test_padding_on_the_right_and_packed_rows_do_not_stream() -> None:
    cache = started(SinkCache())
    with pytest.raises(ValueError, match="takes rows padded on the left"):
        cache.admit(Layout.from_lengths([2, 3]), 3, CPU)
    with pytest.raises(ValueError, match="streams one document a row"):
        cache.admit(Layout.packed([[2, 1], [3]]), 3, CPU)
    short = started(SinkCache(sinks=1, window=3), max_positions=6)
    for t in range(50):
        feed(short, 1, t)
    with pytest.raises(ValueError, match="position 7 is past the model's context of 6"):
        short.admit(None, 7, CPU)
