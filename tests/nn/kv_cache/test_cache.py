"""The cache of a whole model: forks, crops, and rows that remove different numbers of tokens."""

from __future__ import annotations

import pytest
import torch
from kv_caches import CPU, KINDS, B, feed, numbers, started

from qkv.nn.kv_cache.kinds import CacheKind, FullCache, PagedCache, QuantizedCache


@pytest.mark.parametrize("how", KINDS)
def test_forks_go_their_own_ways(how: CacheKind) -> None:
    cache = started(how)
    feed(cache, 4, 1)
    fork = cache.fork(torch.tensor([0, 0, 1]))
    alone = started(how, 3)
    rows = torch.tensor([0, 0, 1])
    k, v = (x[rows] for x in numbers(B, 4, 1))
    alone.admit(None, 4, CPU)
    for state in alone.layers:
        state.append(k, v)  # type: ignore[attr-defined]
    before = feed(cache, 1, 2)
    for t in range(5):
        for found, wanted in zip(feed(fork, 1, 3 + t), feed(alone, 1, 3 + t), strict=True):
            assert torch.equal(found, wanted)
    assert cache.length == 5 and fork.length == 9
    after = started(how)  # what the fork was fed has changed nothing
    feed(after, 4, 1)
    for found, wanted in zip(before, feed(after, 1, 2), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("how", [FullCache(), PagedCache(page=2), QuantizedCache(group=2, residual=2)])
def test_crop_keeps_the_first(how: CacheKind) -> None:
    cache = started(how)
    feed(cache, 7)
    cache.crop(3)
    assert cache.length == 3
    with pytest.raises(ValueError, match="can't crop to 4 tokens: the cache has 3"):
        cache.crop(4)
    keys, _ = feed(cache, 1, 9)
    assert keys.shape[1] == 4
    torch.testing.assert_close(keys[:, :3], numbers(B, 7, 0)[0][:, :3], atol=0.05, rtol=0)


@pytest.mark.parametrize("how", [FullCache(), FullCache(ring=False), PagedCache(page=3)], ids=str)
def test_rows_remove_different_numbers_of_tokens(how: CacheKind) -> None:
    cache = started(how)
    cache.check_rewind_rows()
    feed(cache, 6, seed=1)
    cache.rewind_rows([3, 1])
    assert cache.length == 5 and cache.slot_tables
    keys, _ = feed(cache, 2, seed=2)
    layout = next(iter(cache.slot_tables.values())).layout
    assert layout.positions[..., 0].tolist() == [[0, 1, 2, -1, -1, 3, 4], [0, 1, 2, 3, 4, 5, 6]]
    first, second = numbers(B, 6, 1)[0], numbers(B, 2, 2)[0]
    for b, kept in enumerate((3, 5)):
        assert torch.equal(keys[b, layout.valid[b]], torch.cat([first[b, :kept], second[b]]))
    cache.rewind_rows([2, 2])
    assert cache.length == 5
    cache.rewind_rows([0, 1])
    assert cache.continued([2, 1], CPU).positions[..., 0].tolist() == [[3, 4], [4, -1]]
    assert cache.continued([2, 1], CPU, "left").positions[..., 0].tolist() == [[3, 4], [-1, 4]]


def test_windows_remove_tokens_of_single_rows_only_if_they_keep_all() -> None:
    with pytest.raises(ValueError, match="a window cache of 4 tokens can't remove tokens from single rows"):
        started(FullCache(), size=4).check_rewind_rows()
    with pytest.raises(ValueError, match="a quantized window cache of"):
        started(QuantizedCache(group=2, residual=2), size=4).check_rewind_rows()
    cache = started(FullCache(ring=False), size=4)
    cache.check_rewind_rows()
    feed(cache, 9)
    cache.rewind_rows([5, 7])
    assert cache.length == 4
    assert FullCache(ring=False).kept(9, 4) == 9
