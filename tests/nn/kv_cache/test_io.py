"""Caches in files: saved, loaded, and refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kv_caches import KINDS, K, feed, started

from qkv.core.layout import Layout
from qkv.nn.kv_cache.kinds import CacheKind, FullCache


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("lengths", [None, (5, 3)])
def test_saved_and_loaded(how: CacheKind, lengths: tuple[int, int] | None, tmp_path: Any) -> None:
    cache = started(how, about=lambda: {"layers": [{"heads": K}]})
    feed(cache, 5, 1, Layout.from_lengths(lengths, side="left") if lengths else None)
    for t in range(6):
        feed(cache, 1, seed=2 + t)
    cache.reorder(torch.tensor([1, 0, 0]))
    cache.save(tmp_path / "cache.safetensors")
    again = started(how, about=lambda: {"layers": [{"heads": K}]})
    again.load(tmp_path / "cache.safetensors")
    assert again.batch_size == 3 and again.length == cache.length and again.parts == cache.parts
    for t in range(8):
        for ours, theirs in zip(feed(again, 1, 20 + t), feed(cache, 1, 20 + t), strict=True):
            assert torch.equal(ours, theirs)
        mine, other = again.layers[0].layout.positions, cache.layers[0].layout.positions  # type: ignore[attr-defined]
        assert torch.equal(mine, other)


def test_files_that_do_not_fit_a_cache_are_refused(tmp_path: Any) -> None:
    path = tmp_path / "cache.safetensors"
    cache = started(FullCache(), about=lambda: {"layers": [{"heads": 2}, {"heads": 2}]})
    feed(cache, 3)
    cache.save(path)
    with pytest.raises(
        ValueError, match=r"a cache of 2 layers, each heads 2, and this one is of 2 layers, each heads 4"
    ):
        started(FullCache(), about=lambda: {"layers": [{"heads": 4}, {"heads": 4}]}).load(path)
    with pytest.raises(ValueError, match="the cache already has 3 tokens"):
        cache.load(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="can't be read as a cache"):
        started(FullCache()).load(path)
    with pytest.raises(ValueError, match="can't be read as a cache"):
        started(FullCache()).load(tmp_path / "missing")
    from safetensors.torch import save_file

    save_file({"k": torch.zeros(1)}, str(path))
    with pytest.raises(ValueError, match="is not a cache file of this version of qkv"):
        started(FullCache()).load(path)
