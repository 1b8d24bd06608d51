"""The paged cache: pages hold what a full cache holds, are shared by forks, copied on write and given back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_caches import CPU, D, E, K, feed, started

from qkv.nn.kv_cache.cache import Cache
from qkv.nn.kv_cache.kinds import FullCache, PagedCache


def pages_held(cache: Cache) -> int:
    (slot_table,) = cache.slot_tables.values()
    return len(slot_table.pages_in_use())  # type: ignore[attr-defined]


@settings(max_examples=60)
@given(
    steps=st.lists(
        st.integers(1, 5) | st.lists(st.integers(0, 5), min_size=1, max_size=4) | st.just("rewind"), max_size=9
    ),
    page=st.integers(1, 4),
)
def test_pages_hold_what_a_full_cache_holds(steps: list[Any], page: int) -> None:
    cache, plain = started(PagedCache(page=page)), started(FullCache())
    feed(cache, 3, 1), feed(plain, 3, 1)
    for seed, step in enumerate(steps):
        if step == "rewind":
            n = min(cache.length, seed + 1)
            cache.rewind(n), plain.rewind(n)
        elif isinstance(step, list):
            rows = torch.tensor([row % cache.batch_size for row in step])
            cache.reorder(rows), plain.reorder(rows)
        else:
            for found, wanted in zip(feed(cache, step, seed + 2), feed(plain, step, seed + 2), strict=True):
                assert torch.equal(found, wanted)
    assert pages_held(cache) <= cache.batch_size * -(-cache.length // page)


def test_a_common_beginning_is_held_once_and_copied_where_rows_part() -> None:
    cache = started(PagedCache(page=4), rows=1)
    feed(cache, 10)
    assert pages_held(cache) == 3
    cache.reorder(torch.tensor([0] * 5))
    assert pages_held(cache) == 3 and cache.nbytes == 2 * 3 * 4 * K * (D + E) * 4
    feed(cache, 1, 2)
    assert pages_held(cache) == 2 + 5  # the third page was begun, and each row continues in its own
    cache.reorder(torch.tensor([1]))
    assert pages_held(cache) == 3
    cache.rewind(3)
    assert pages_held(cache) == 2


def test_a_fork_shares_pages_and_gives_them_back_when_it_is_dropped() -> None:
    cache = started(PagedCache(page=4, pages=6), rows=1)
    feed(cache, 8)
    fork = cache.fork(torch.tensor([0, 0]))
    (slot_table,) = cache.slot_tables.values()
    assert slot_table.pages.left == 4  # type: ignore[attr-defined]
    feed(fork, 4, 2)
    assert slot_table.pages.left == 2  # type: ignore[attr-defined]
    del fork
    assert slot_table.pages.left == 4  # type: ignore[attr-defined]


def test_pages_that_are_too_few_are_refused_before_anything_is_changed() -> None:
    cache = started(PagedCache(page=2, pages=5))
    feed(cache, 4)
    with pytest.raises(ValueError, match=r"6 tokens in 2 rows need 2 more pages of 2, and 1 of 5 are left"):
        cache.admit(None, 2, CPU)
    assert cache.length == 4
    cache.reorder(torch.tensor([0]))
    feed(cache, 2, 1)
    assert pages_held(cache) == 3
