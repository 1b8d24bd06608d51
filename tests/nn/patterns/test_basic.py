"""Rules of patterns pair by pair, and their verdicts on blocks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_rules import (
    Token,
    allowed,
    by_heads,
    groups,
    holds,
    interval_of,
    patterns,
)
from torch import Tensor

from qkv.core.layout import Layout, View
from qkv.nn.patterns.basic import (
    Interval,
    Pattern,
    by_head,
    causal,
    chunks,
    dilated,
    fixed,
    full,
    global_tokens,
    prefix,
    random_blocks,
    sinks,
    strided,
    window,
)


@given(patterns, groups, groups)
def test_allowed_is_the_rule_pair_by_pair(pattern: Pattern, q: list[Token], k: list[Token]) -> None:
    assert allowed(pattern, q, k).tolist() == [[holds(pattern, x, y) for y in k] for x in q]


@settings(max_examples=200)
@given(patterns, groups, groups)
def test_block_verdicts_never_contradict_the_rule(pattern: Pattern, q: list[Token], k: list[Token]) -> None:
    pairs = [holds(pattern, x, y, head) for x in q for y in k for head in range(pattern.head_period)]
    x, y = interval_of(q), interval_of(k)
    maybe, surely = pattern.block(x, y)
    assert bool(maybe) or not any(pairs)
    assert not bool(surely) or all(pairs)
    many = pattern.block(Interval(*(torch.tensor([[v]]) for v in x)), Interval(*(torch.tensor([v, v]) for v in y)))
    for number, grid in zip((maybe, surely), many, strict=True):
        assert torch.as_tensor(grid).expand(1, 2).tolist() == [[bool(number)] * 2]


@pytest.mark.parametrize(
    "pattern, q, k, verdict",
    [
        (causal(), (0, 63), (64, 127), (False, False)),
        (causal(), (64, 127), (0, 63), (True, True)),
        (causal(), (64, 127), (64, 127), (True, False)),
        (causal() & window(32), (192, 255), (0, 63), (False, False)),
        (causal() & window(1000), (192, 255), (0, 63), (True, True)),
        (causal() & window(32) | sinks(64), (192, 255), (0, 63), (True, True)),
        (~causal(), (0, 63), (64, 127), (True, True)),
        (prefix(16), (0, 63), (64, 127), (False, False)),
        (prefix(80, within=True), (64, 127), (0, 63), (True, False)),
        (prefix(80, within=True), (80, 127), (0, 63), (False, False)),
        (prefix(128, within=True), (64, 127), (0, 63), (True, True)),
        (window(8) | global_tokens(64), (0, 63), (512, 575), (True, True)),
        (window(8) | global_tokens(64), (64, 127), (512, 575), (False, False)),
        (dilated(4, 64), (256, 256), (64, 64), (True, True)),
        (dilated(4, 64), (256, 287), (96, 127), (False, False)),  # no two of them 64 or 128 apart
        (dilated(4, 64), (256, 287), (0, 31), (False, False)),  # 256 apart is past the window
        (strided(128), (512, 575), (0, 63), (True, False)),
        (strided(128), (576, 607), (0, 31), (False, False)),
        (strided(64), (128, 159), (96, 127), (True, True)),
        (fixed(128, 8), (512, 575), (0, 63), (False, False)),
        (fixed(128, 8), (512, 575), (64, 127), (True, False)),
        (fixed(128, 8), (512, 575), (120, 127), (True, True)),
        (fixed(128, 8), (0, 63), (64, 127), (True, True)),
        (chunks(128), (128, 191), (192, 255), (True, True)),
        (chunks(128), (128, 191), (0, 127), (False, False)),
        (chunks(64, back=1), (128, 191), (0, 127), (True, False)),
        (by_head(window(2), chunks(64)), (0, 31), (32, 63), (True, False)),
    ],
)
def test_blocks_are_decided_where_they_can_be(pattern: Pattern, q: tuple, k: tuple, verdict: tuple) -> None:
    assert pattern.block(Interval(*q), Interval(*k)) == verdict


@given(patterns, st.integers(0, 12), st.integers(1, 12))
def test_later_tokens_change_nothing_for_earlier_ones(pattern: Pattern, start: int, n: int) -> None:
    """What a decoder with a cache asks is what one pass over all asks."""
    whole = Layout.full(start + n)
    mask = pattern.allowed(whole.slice(start, start + n).queries(), whole.keys()).expand(1, n, start + n)[0]
    assert torch.equal(mask, pattern.mask(start + n)[start:])


def test_strided_and_fixed_by_head_are_the_two_heads_of_the_paper() -> None:
    local, far = strided(4, "local"), strided(4, "far")
    assert torch.equal((local | far).mask(40), strided(4).mask(40))
    first, second = by_heads(causal() & by_head(local, far), 12)
    rows = range(12)
    assert first.tolist() == [[k in range(max(0, q - 4), q + 1) for k in rows] for q in rows]
    assert second.tolist() == [[k <= q and (q - k) % 4 == 0 for k in rows] for q in rows]
    first, second = by_heads(causal() & by_head(fixed(4, 2, "local"), fixed(4, 2, "far")), 12)
    assert first.tolist() == [[k <= q and k // 4 == q // 4 for k in rows] for q in rows]
    assert second.tolist() == [[k <= q and k % 4 in (2, 3) for k in rows] for q in rows]


def test_mask_of_the_familiar_patterns() -> None:
    assert causal().mask(3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert (causal() & window(2)).mask(4).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert (causal() | prefix(2)).mask(3).int().tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    within = causal() & window(1) | prefix(2, within=True)
    assert within.mask(3).int().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]] and within.pairs(3) == 5
    assert window(1).mask(2, 3).int().tolist() == [[1, 0, 0], [0, 1, 0]]


def test_what_depends_on_positions_and_on_heads() -> None:
    class Halves(Pattern, kind="halves"):
        @property
        def per_head(self) -> bool:
            return True

        def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
            return k.position % 2 == head

    assert not full().positional and not (full() | full()).positional and not (~full()).positional
    assert (full() | causal()).positional and (~causal()).positional
    assert not causal().per_head
    assert (causal() & Halves()).per_head and (causal() | Halves()).per_head and (~Halves()).per_head


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: window(0), "greater than 0"),
        (lambda: sinks(-1), "greater than 0"),
        (lambda: dilated(3, 0), "dilation: input should be greater than 0, not 0"),
        (lambda: dilated(0, 2), "size: input should be greater than 0, not 0"),
        (lambda: strided(0), "stride: input should be greater than 0, not 0"),
        (lambda: strided(4, "near"), "part: input should be 'both', 'local' or 'far', not 'near'"),
        (lambda: fixed(4, 5), "summary=5 positions don't fit into blocks of 4; take fewer"),
        (lambda: fixed(4, 0), "summary: input should be greater than 0, not 0"),
        (lambda: chunks(0), "size: input should be greater than 0, not 0"),
        (lambda: chunks(4, back=-1), "back: input should be greater than or equal to 0, not -1"),
        (lambda: random_blocks(0, 1), "size: input should be greater than 0, not 0"),
        (lambda: random_blocks(2, 0), "count: input should be greater than 0, not 0"),
        (lambda: random_blocks(2, 1, seed=-1), "seed: input should be greater than or equal to 0, not -1"),
        (lambda: by_head(), "at least 1 item"),
        (lambda: Pattern.from_dict({"kind": "casual"}), "did you mean 'causal'"),
        (lambda: Pattern.from_dict({"kind": "and", "parts": []}), "at least 1 item"),
    ],
)
def test_wrong_values_are_refused(make: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()  # type: ignore[operator]
