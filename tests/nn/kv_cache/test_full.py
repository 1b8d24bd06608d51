"""What is remembered: rings against full caches against no cache, reorder, rewind and its refusals, bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.kv_cache.cache import Cache
from qkv.nn.kv_cache.full import CrossState
from qkv.nn.patterns.basic import causal, window

CPU = torch.device("cpu")
B, K, D, E = 2, 1, 4, 3


class Decoder:
    """One attention without projections over a cache of two layers, the first a full cache and the second a ring; and
    beside it everything that was ever fed, to attend to without a cache."""

    def __init__(self, size: int, rows: int = B) -> None:
        self.pattern = causal() & window(size)
        self.cache = Cache(rows, [None, size], cross=False)
        self.fed: list[Tensor] = []  # (B, T, K, D + E) keys and values
        self.at: list[Tensor] = []  # (B, T) positions

    def step(self, count: int, layout: Layout | None = None) -> tuple[Tensor, Tensor, Tensor]:
        rows = self.cache.batch_size
        q, k, v = torch.randn(rows, count, 2, D), torch.randn(rows, count, K, D), torch.randn(rows, count, K, E)
        here = self.cache.admit(layout, count, CPU)
        self.fed.append(torch.cat([k, v], -1))
        self.at.append(here.positions[..., 0].expand(rows, count))
        outs = []
        for state in self.cache.layers:
            keys, values = state.append(k, v)
            outs.append(attend(q, keys, values, pattern=self.pattern, layout=here, kv_layout=state.layout, clean=True))
        every, at = torch.cat(self.fed, 1), torch.cat(self.at, 1)
        plain = attend(
            q, every[..., :D], every[..., D:], pattern=self.pattern, layout=Layout(self.at[-1]), kv_layout=Layout(at)
        )
        return outs[0], outs[1], plain

    def reorder(self, rows: list[int]) -> None:
        index = torch.tensor(rows)
        self.cache.reorder(index)
        self.fed, self.at = [x[index] for x in self.fed], [x[index] for x in self.at]

    def rewind(self, n: int) -> None:
        self.cache.rewind(n)
        every, at = torch.cat(self.fed, 1), torch.cat(self.at, 1)
        self.fed, self.at = [every[:, : every.shape[1] - n]], [at[:, : at.shape[1] - n]]


def assert_all_equal(outs: tuple[Tensor, ...]) -> None:
    for out in outs[:-1]:
        torch.testing.assert_close(out, outs[-1], atol=1e-5, rtol=1e-5)


@settings(max_examples=60)
@given(
    size=st.integers(1, 5),
    steps=st.lists(st.integers(1, 4) | st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=2, max_size=9),
    lengths=st.none() | st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_ring_and_full_and_none_agree(size: int, steps: list[Any], lengths: tuple[int, int] | None) -> None:
    """Steps of any length, and reorders to any rows, after a prompt that may be padded on the left."""
    decoder = Decoder(size)
    if lengths is not None:
        assert_all_equal(decoder.step(max(lengths), Layout.from_lengths(lengths, side="left")))
    for step in steps:
        if isinstance(step, int):
            assert_all_equal(decoder.step(step))
        else:
            decoder.reorder([row % decoder.cache.batch_size for row in step])


def test_rows_continue_at_their_own_positions() -> None:
    decoder = Decoder(8)
    decoder.step(4, Layout.from_lengths([2, 4], side="left"))
    decoder.step(2)
    assert decoder.at[-1].tolist() == [[2, 3], [4, 5]] and decoder.cache.length == 6
    decoder.reorder([1, 0, 0])
    decoder.step(1)
    assert decoder.at[-1].tolist() == [[6], [4], [4]]


def test_a_step_continues_from_where_its_layout_began() -> None:
    decoder = Decoder(8)
    decoder.step(3, Layout.full(3, start=5))
    decoder.step(1)
    assert decoder.at[-1].flatten().tolist() == [8, 8]


@pytest.mark.parametrize("lengths", [None, (3, 5)])
def test_rewind_takes_back_tokens(lengths: tuple[int, int] | None) -> None:
    decoder = Decoder(16)
    decoder.step(5, Layout.from_lengths(lengths, side="left") if lengths else None)
    first = decoder.at[-1].clone()
    decoder.step(4)
    decoder.rewind(3)
    assert decoder.cache.length == 6
    outs = decoder.step(2)
    assert_all_equal(outs)
    assert decoder.at[-1].tolist() == [[int(row[-1]) + 2, int(row[-1]) + 3] for row in first]


def test_rewind_into_padding_starts_the_row_again() -> None:
    """Four of five columns taken back: the row of two tokens, left padded, has none left and starts at 0."""
    decoder = Decoder(16)
    decoder.step(5, Layout.from_lengths([5, 2], side="left"))
    decoder.rewind(4)
    outs = decoder.step(1)
    assert decoder.at[-1].tolist() == [[1], [0]]
    assert_all_equal(outs)


def test_a_rewound_cache_refuses_what_it_let_go_and_stays_whole() -> None:
    decoder = Decoder(3)
    decoder.step(5)
    with pytest.raises(ValueError, match=r"window cache of 3 tokens .* can't rewind after 5; use a full cache"):
        decoder.cache.rewind(2)
    assert decoder.cache.length == 5
    assert_all_equal(decoder.step(1))  # neither layer has forgotten anything


@pytest.mark.parametrize("n", [-1, 5])
def test_a_rewind_of_more_than_there_is_is_refused(n: int) -> None:
    decoder = Decoder(8)
    decoder.step(4)
    with pytest.raises(ValueError, match=f"can't rewind {n} tokens: the cache has 4"):
        decoder.cache.rewind(n)


def test_rewind_to_the_beginning_and_again() -> None:
    decoder = Decoder(8)
    decoder.step(3)
    decoder.rewind(3)
    assert decoder.cache.nbytes == 0
    assert_all_equal(decoder.step(2))
    assert decoder.at[-1][0].tolist() == [0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_are_what_is_held(dtype: torch.dtype) -> None:
    cache, size, n = Cache(B, [None, 4], cross=True, capacity=100), 4, 7
    k, v = torch.zeros(B, n, K, D, dtype=dtype), torch.zeros(B, n, K, E, dtype=dtype)
    assert cache.nbytes == 0
    for t in range(n):
        cache.admit(None, 1, CPU)
        for state in cache.layers:
            state.append(k[:, t : t + 1], v[:, t : t + 1])
    each = B * K * (D + E) * dtype.itemsize
    assert cache.nbytes == each * (n + size)
    cache.cross[0].fill(k, v, Layout.full(n))
    assert cache.nbytes == each * (n + size + n)
    cache.reorder(torch.tensor([0, 1, 1]))
    assert cache.nbytes == each * (n + size + n) * 3 // 2


def test_capacity_changes_nothing_but_copies() -> None:
    for capacity in (None, 2, 200):
        torch.manual_seed(1)
        cache, held = Cache(1, [None], cross=False, capacity=capacity), []
        for _ in range(130):
            k = torch.randn(1, 1, K, D)
            held.append(k)
            cache.admit(None, 1, CPU)
            keys, _ = cache.layers[0].append(k, k)
        assert torch.equal(keys, torch.cat(held, 1))


def test_context_is_bounded_also_where_rows_differ() -> None:
    for layout in (None, Layout.from_lengths([2, 4], side="left")):
        cache = Cache(B, [None], cross=False, max_positions=6)
        cache.admit(layout, 4, CPU)
        cache.admit(None, 2, CPU)
        with pytest.raises(ValueError, match="past the model's context of 6"):
            cache.admit(None, 1, CPU)


def test_rows_move_in_place_only_where_nobody_has_seen_them() -> None:
    cache, rows = Cache(3, [None], cross=False), torch.tensor([2, 0, 0])
    cache.admit(None, 2, CPU)
    (state,) = cache.layers
    k, v = torch.randn(3, 2, K, D), torch.randn(3, 2, K, E)
    seen, _ = state.append(k, v)
    with torch.no_grad():
        cache.reorder(rows)
        assert torch.equal(seen, k)  # what append gave stays as it was
        first = state.buffers(1)
        cache.reorder(rows)
        again = state.buffers(1)
        assert first is not None and again is not None and first[0] is again[0] and first[1] is again[1]
        for found, given in zip(state.tensors().values(), (k, v), strict=True):
            assert torch.equal(found.transpose(1, 2), given[rows][rows])
        kept = state.tensors()["k"]
        before = kept.clone()
        cache.reorder(rows)
        assert torch.equal(kept, before)


def test_cross_state_reorders_with_its_layout() -> None:
    state, layout = CrossState(), Layout.from_lengths([2, 3])
    k, v = torch.randn(2, 3, K, D), torch.randn(2, 3, K, E)
    state.fill(k, v, layout)
    state.rewind(99)  # an encoder's keys are nothing to take back
    state.reorder(torch.tensor([1, 0, 1]))
    assert torch.equal(state.keys_values[0], k[[1, 0, 1]]) and torch.equal(state.keys_values[1], v[[1, 0, 1]])
    assert torch.equal(state.layout.positions, layout.positions[[1, 0, 1]])
    assert state.nbytes == 3 * 3 * K * (D + E) * 4
