"""The quantized cache: keys and values stay near, the newest tokens exact, and a window drops whole groups."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_caches import feed, started

from qkv.nn.kv_cache.kinds import FullCache, QuantizedCache


@settings(max_examples=60)
@given(
    steps=st.lists(
        st.integers(1, 9) | st.lists(st.integers(0, 5), min_size=1, max_size=3) | st.just("rewind"), max_size=9
    ),
    group=st.sampled_from([2, 4]),
    residual=st.integers(0, 5),
    bits=st.sampled_from([8, 4]),
)
def test_codes_stay_near_whatever_happens(steps: list[Any], group: int, residual: int, bits: Any) -> None:
    """Steps of any length, reorders and rewinds: everything is there, within the steps of its codes."""
    how = QuantizedCache(bits=bits, group=group, residual=residual)
    cache, plain = started(how), started(FullCache())
    feed(cache, 3, 1), feed(plain, 3, 1)
    for seed, step in enumerate(steps):
        if step == "rewind":
            n = min(cache.length, seed + 1)
            cache.rewind(n), plain.rewind(n)
        elif isinstance(step, list):
            rows = torch.tensor([row % cache.batch_size for row in step])
            cache.reorder(rows), plain.reorder(rows)
        else:
            found, wanted = feed(cache, step, seed + 2), feed(plain, step, seed + 2)
            apart = max(float((a - b).abs().max()) for a, b in zip(found, wanted, strict=True))
            assert apart < (0.05 if bits == 8 else 0.8)
            assert torch.equal(found[0][:, -min(step + residual, found[0].shape[1]) :][:, -step:], wanted[0][:, -step:])
    assert cache.length == plain.length


def test_the_newest_tokens_stay_as_they_are() -> None:
    cache, plain = started(QuantizedCache(group=4, residual=6)), started(FullCache())
    for t in range(30):
        found, wanted = feed(cache, 1, t)[0], feed(plain, 1, t)[0]
        assert torch.equal(found[:, -6:], wanted[:, -6:])
    assert not torch.equal(found[:, :4], wanted[:, :4])


def test_a_quantized_window_lets_go_of_whole_groups_and_refuses_to_go_back() -> None:
    how = QuantizedCache(group=2, residual=2)
    cache, plain = started(how, size=6), started(FullCache())
    for t in range(15):
        found, wanted = feed(cache, 1, t)[0], feed(plain, 1, t)[0]
        torch.testing.assert_close(found, wanted[:, -found.shape[1] :], atol=0.05, rtol=0)
        assert min(t + 1, 6) <= found.shape[1] <= 8
    with pytest.raises(
        ValueError, match=r"a window cache of 6 tokens has evicted the first \d+ of 15 and can't rewind 5"
    ):
        cache.rewind(5)
    assert cache.length == 15
    cache.rewind(1)
    torch.testing.assert_close(feed(cache, 1, 14)[0][:, -6:], wanted[:, -6:], atol=0.05, rtol=0)
