"""Kinds of cache: what they hold, what they give back, what they refuse, and what their bytes are."""

from __future__ import annotations

import pytest
from kv_caches import KINDS, B, D, E, K, feed, started

from qkv.nn.kv_cache.kinds import CacheKind, FullCache, PagedCache, QuantizedCache, named

# -- as values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", KINDS)
def test_a_kind_is_a_value(how: CacheKind) -> None:
    assert CacheKind.from_json(how.to_json()) == how and named(how) is how and named(how.to_dict()) == how


def test_kinds_have_short_names() -> None:
    assert named(None) == FullCache() and named("paged") == PagedCache()
    assert named("int8") == QuantizedCache() and named("int4") == QuantizedCache(bits=4)
    assert CacheKind.model_validate("int4") == QuantizedCache(bits=4)
    with pytest.raises(ValueError, match="there is no cache 'sink'; did you mean 'sinks'"):
        named("sink")
    with pytest.raises(ValueError, match=r"group has to be even, not 5"):
        QuantizedCache(bits=4, group=5)
    with pytest.raises(ValueError, match=r"bits: input should be 4 or 8, not 3"):
        QuantizedCache(bits=3)


# -- all kinds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", KINDS)
def test_bytes_are_what_is_held_and_what_is_foretold(how: CacheKind) -> None:
    cache = started(how)
    assert cache.nbytes == 0
    for t in range(1, 24):
        feed(cache, 1, seed=t)
        foretold = how.bytes(t, K, D, E, 4)
        assert cache.parts == {name: 2 * B * size for name, size in foretold.items()}, t
        assert cache.nbytes == sum(cache.parts.values())


@pytest.mark.parametrize("how", KINDS[:3])
def test_a_window_bounds_what_is_held(how: CacheKind) -> None:
    cache = started(how, size=5)
    for t in range(40):
        feed(cache, 1, seed=t)
        assert cache.nbytes == 2 * B * sum(how.bytes(how.kept(t + 1, 5), K, D, E, 4).values())
    keys, _ = feed(cache, 1, seed=99)
    assert keys.shape[1] < 20


# -- quantized -----------------------------------------------------------------------------------------------------------


# -- sinks ---------------------------------------------------------------------------------------------------------------


# -- pages ---------------------------------------------------------------------------------------------------------------


# -- rows that remove different numbers of tokens ------------------------------------------------------------------------
