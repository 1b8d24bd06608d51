"""Kinds of cache: what they hold, what they give back, what they refuse, and what their bytes are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qkv.core.layout import Layout
from qkv.nn.kv_cache.cache import Cache
from qkv.nn.kv_cache.kinds import CacheKind, FullCache, PagedCache, QuantizedCache, SinkCache, named
from qkv.nn.kv_cache.quantization import QuantizedKV

CPU = torch.device("cpu")
B, K, D, E = 2, 2, 6, 4
KINDS = [
    FullCache(),
    QuantizedCache(bits=8, group=4, residual=3),
    QuantizedCache(bits=4, group=4, residual=0),
    SinkCache(sinks=1, window=4),
    PagedCache(page=3),
]


def started(how: CacheKind, rows: int = B, size: int | None = None, layers: int = 2, **more: Any) -> Cache:
    def make(slot_tables: Any, capacity: int | None) -> Any:
        return how.state(slot_tables, size, capacity)

    return Cache(rows, [make] * layers, cross=False, **more)


def numbers(rows: int, tokens: int, seed: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(rows, tokens, K, D, generator=random), torch.randn(rows, tokens, K, E, generator=random)


def feed(cache: Cache, tokens: int, seed: int = 0, layout: Layout | None = None) -> tuple[Tensor, Tensor]:
    """Feed the same numbers to every layer; keys and values that the last gives back, dense."""
    k, v = numbers(cache.batch_size, tokens, seed)
    cache.admit(layout, tokens, CPU)
    given = [state.append(k, v) for state in cache.layers]  # type: ignore[attr-defined]
    keys, values = (x.dequantize() if isinstance(x, QuantizedKV) else x for x in given[-1])
    return keys, values


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


def test_what_can_not_be_loaded(tmp_path: Any) -> None:
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


# -- quantized -----------------------------------------------------------------------------------------------------------


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


# -- sinks ---------------------------------------------------------------------------------------------------------------


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


def test_what_does_not_stream() -> None:
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


# -- pages ---------------------------------------------------------------------------------------------------------------


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


# -- rows that remove different numbers of tokens ------------------------------------------------------------------------


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


@pytest.mark.parametrize("how", [SinkCache(), named("h2o"), named("snapkv")], ids=str)
def test_caches_that_evict_refuse_it(how: CacheKind) -> None:
    with pytest.raises(ValueError, match=r"can't remove tokens.*; use a full cache"):
        started(how).check_rewind_rows()


def test_windows_refuse_it_unless_they_keep_all_tokens() -> None:
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
