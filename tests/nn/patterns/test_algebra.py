"""Combinations of patterns: in each head, simplified, as JSON, and with their warnings."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pattern_rules import (
    Token,
    allowed,
    by_heads,
    groups,
    holds,
    layout_of,
    patterns,
)

from qkv.core.layout import View
from qkv.nn.patterns.basic import (
    And,
    Or,
    Pattern,
    causal,
    chunks,
    full,
    global_tokens,
    prefix,
    sinks,
    window,
)


@given(patterns, groups, groups)
def test_a_combination_allows_in_each_head_what_its_parts_do(pattern: Pattern, q: list[Token], k: list[Token]) -> None:
    views = [View(*(x.unsqueeze(1) for x in view)) for view in (layout_of(q).queries(), layout_of(k).keys())]
    mask = pattern.allowed(*views, torch.arange(5)[:, None, None]).expand(1, 5, len(q), len(k))[0]
    assert mask.tolist() == [[[holds(pattern, x, y, head) for y in k] for x in q] for head in range(5)]
    assert pattern.per_head or all(torch.equal(head, mask[0]) for head in mask)
    repeats = [torch.equal(mask[head], mask[head + pattern.head_period]) for head in range(5 - pattern.head_period)]
    assert all(repeats), "the rule comes round again"


@given(patterns, patterns, groups, groups)
def test_de_morgan(a: Pattern, b: Pattern, q: list[Token], k: list[Token]) -> None:
    assert torch.equal(allowed(~(a & b), q, k), allowed(~a | ~b, q, k))
    assert torch.equal(allowed(~(a | b), q, k), allowed(~a & ~b, q, k))


@given(patterns, st.integers(1, 30))
def test_nothing_is_seen_beyond_reach(pattern: Pattern, n: int) -> None:
    if pattern.reach is not None:
        assert not by_heads(pattern, n).tril(-pattern.reach).any()


@given(patterns)
def test_json_round_trip(pattern: Pattern) -> None:
    again = Pattern.from_json(pattern.to_json())
    assert again == pattern and hash(again) == hash(pattern) and again.to_json() == pattern.to_json()


def test_pictures_are_saved_by_their_ending(tmp_path: Path) -> None:
    causal().save_picture(tmp_path / "a.svg", 5)
    causal().save_picture(tmp_path / "a.PNG", 5)
    assert (tmp_path / "a.svg").read_text() == causal().picture(5)
    assert (tmp_path / "a.PNG").read_bytes() == causal().picture(5, format="png")
    with pytest.raises(ValueError, match=r"must end in .svg or .png, not 'a.gif'"):
        causal().save_picture("a.gif")
    with pytest.raises(ValueError, match="'svg' or 'png', not 'gif'"):
        causal().picture(5, format="gif")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "pattern, said",
    [
        (causal() & ~window(3), "positions 0–2 of 256, where attention returns 0; add"),
        (causal() & ~window(2) & ~sinks(1) | causal() & chunks(2) & ~window(1), r"positions 0, 2 of 256"),
    ],
)
def test_a_warning_names_the_blind_positions(pattern: Pattern, said: str) -> None:
    with pytest.warns(UserWarning, match=said):
        pattern.warn_if_fully_masked()


@pytest.mark.parametrize(
    "pattern", [causal(), prefix(), causal() & global_tokens(), causal() & ~(prefix() & window(2))]
)
def test_no_warning_where_roles_may_help(pattern: Pattern) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pattern.warn_if_fully_masked()


def test_composition_simplifies() -> None:
    a, b, c = causal(), window(3), sinks(1)
    assert full() & a == a == a & full()
    assert ~~a == a
    assert (a & b) & c == a & (b & c) == And(parts=(a, b, c))
    assert (a | b) | c == a | (b | c) == Or(parts=(a, b, c))
    assert And(parts=(a, b, a)) == a & b
