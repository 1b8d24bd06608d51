"""The number of pairs and the empty rows of patterns, against the sum of the mask and formulas for long sequences."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_rules import (
    by_heads,
    patterns,
)

from qkv.nn.patterns import counts
from qkv.nn.patterns.basic import (
    Pattern,
    by_head,
    causal,
    chunks,
    dilated,
    fixed,
    full,
    global_tokens,
    sinks,
    strided,
    window,
)

lengths = st.sampled_from([0, 1, 5, 63, 64, 65, 130, 200])


@settings(max_examples=60, deadline=None)
@given(patterns, lengths)
def test_pairs_is_the_sum_of_the_mask(pattern: Pattern, n: int) -> None:
    assert pattern.pairs(n) == int(by_heads(pattern, n).sum()) // pattern.head_period
    assert torch.equal(by_heads(pattern, n)[0], pattern.mask(n))


@settings(max_examples=60, deadline=None)
@given(patterns, lengths)
def test_blind_are_the_queries_whose_row_is_empty(pattern: Pattern, n: int) -> None:
    empty = ~by_heads(pattern, n).any(-1).all(0) if n else torch.zeros(0)
    assert pattern.fully_masked(n) == empty.nonzero()[:, 0].tolist()


@settings(max_examples=60, deadline=None)
@given(patterns, st.integers(1, 40))
def test_a_pattern_repeats_after_its_period(pattern: Pattern, n: int) -> None:
    assert pattern.period is not None
    period, start = pattern.period
    mask = by_heads(pattern, n)[:, start:, start:]
    assert torch.equal(mask[:, :-period, :-period], mask[:, period:, period:])
    assert counts._by_difference(pattern, n, period, start) == int(by_heads(pattern, n).sum())


@pytest.mark.parametrize(
    "pattern, pairs",
    [
        (causal(), lambda n: n * (n + 1) // 2),
        (causal() & window(256), lambda n: n * 256 - 256 * 255 // 2),
        (window(3), lambda n: 5 * n - 6),
        (full(), lambda n: n * n),
        (window(3) | global_tokens(2), lambda n: 4 * n - 4 + 5 * (n - 2) - 6),
        (
            causal() & window(100) | causal() & sinks(4),
            lambda n: n * 100 - 100 * 99 // 2 + sum(range(4)) + 4 * (n - 103),
        ),
        (dilated(5, 7), lambda n: n + 2 * sum(n - 7 * i for i in range(1, 5))),
        (strided(300, "far"), lambda n: n + 2 * sum(range(n - 300, 0, -300))),
        (
            causal() & strided(316),
            lambda n: n + sum(range(n - 316, n)) + sum(range(n - 2 * 316, 0, -316)),
        ),
        pytest.param(fixed(500, 3), lambda n: n * 500 + n * 3 * (n // 500 - 1), marks=pytest.mark.slow),
        (causal() & fixed(500, part="local"), lambda n: n // 500 * 500 * 501 // 2),
        (chunks(1000, back=1), lambda n: n * 2000 - 1000 * 1000),
        (by_head(causal(), window(1)), lambda n: (n * (n + 1) // 2 + n) // 2),
        pytest.param(
            strided(300, "far") | sinks(2),
            lambda n: n + 2 * sum(range(n - 300, 0, -300)) + 2 * n - (n + 299) // 300 - (n - 1 + 299) // 300,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_pairs_of_long_sequences_without_their_mask(pattern: Pattern, pairs: object) -> None:
    n = 100_000  # a mask would take 10 GB
    assert pattern.pairs(n) == pairs(n)  # type: ignore[operator]


def test_blind_queries_of_a_long_row() -> None:
    n = 100_000
    assert (causal() & ~window(3)).fully_masked(n) == [0, 1, 2]
    assert (~causal()).fully_masked(n) == [n - 1]
    assert (causal() & strided(64, "far") & ~window(1)).fully_masked(n) == list(range(64))
    assert (~full()).fully_masked(5) == [0, 1, 2, 3, 4]
    assert by_head(full(), causal() & ~window(1)).fully_masked(n) == [0], "one blind head is enough"


@pytest.mark.slow
def test_pairs_of_sparse_patterns_grow_as_n_to_the_three_halves() -> None:
    for make in (strided, fixed):
        small, large = (causal() & make(side) for side in (64, 256))
        growth = large.pairs(256**2) / small.pairs(64**2)
        assert 63 < growth < 65, "16 times the tokens, 64 times the pairs"
