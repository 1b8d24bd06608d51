"""Patterns: composition against brute force, verdicts on blocks, the count, the JSON form and the picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qkv.core.layout import Layout, Role, View
from qkv.core.patterns import (
    And,
    Causal,
    Documents,
    Extent,
    Full,
    Global,
    Not,
    Or,
    Pattern,
    Prefix,
    Sinks,
    Window,
    causal,
    documents,
    full,
    global_tokens,
    prefix,
    sinks,
    window,
)

Token = tuple[int, int, int]  # position, segment, role

leaves = st.one_of(
    st.just(full()),
    st.just(causal()),
    st.just(documents()),
    st.builds(window, st.integers(1, 6), st.none() | st.integers(1, 6)),
    st.builds(sinks, st.integers(1, 5)),
    st.builds(prefix, st.none() | st.integers(1, 5)),
    st.builds(global_tokens, st.none() | st.integers(1, 5)),
)
patterns = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        inner.map(lambda a: ~a),
    ),
    max_leaves=5,
)
roles = st.sampled_from([0, int(Role.PREFIX), int(Role.CLASS), int(Role.GLOBAL), int(Role.PREFIX | Role.GLOBAL)])
tokens = st.tuples(st.integers(0, 12), st.integers(0, 2), roles)
groups = st.lists(tokens, min_size=1, max_size=5)


def holds(pattern: Pattern, q: Token, k: Token) -> bool:
    """The rule for one pair, written out again from the definitions."""
    match pattern:
        case Full():
            return True
        case Causal():
            return k[0] <= q[0]
        case Window(size=size, ahead=ahead):
            return q[0] - k[0] < size and k[0] - q[0] < (size if ahead is None else ahead)
        case Sinks(count=count):
            return k[0] < count
        case Prefix(length=None):
            return bool(k[2] & Role.PREFIX)
        case Prefix(length=length):
            return k[0] < length  # type: ignore[operator]
        case Global(first=None):
            return bool((q[2] | k[2]) & Role.GLOBAL)
        case Global(first=first):
            return min(q[0], k[0]) < first  # type: ignore[operator]
        case Documents():
            return q[1] == k[1]
        case And(parts=parts):
            return all(holds(part, q, k) for part in parts)
        case Or(parts=parts):
            return any(holds(part, q, k) for part in parts)
        case Not(part=part):
            return not holds(part, q, k)
    raise AssertionError(pattern)


def layout_of(group: list[Token]) -> Layout:
    position, segment, role = torch.tensor(group).T
    return Layout(position[None], segment[None], role[None], one_segment=False)


def extent_of(group: list[Token]) -> Extent:
    position, segment, role = zip(*group, strict=True)
    any_role, all_role = 0, ~0
    for bits in role:
        any_role, all_role = any_role | bits, all_role & bits
    return Extent(min(position), max(position), min(segment), max(segment), any_role, all_role)


def allowed(pattern: Pattern, q: list[Token], k: list[Token]) -> Tensor:
    mask = pattern.allowed(layout_of(q).queries(), layout_of(k).keys())
    return mask.expand(1, len(q), len(k))[0]


@given(patterns, groups, groups)
def test_allowed_is_the_rule_pair_by_pair(pattern: Pattern, q: list[Token], k: list[Token]) -> None:
    assert allowed(pattern, q, k).tolist() == [[holds(pattern, x, y) for y in k] for x in q]


@given(patterns, patterns, groups, groups)
def test_de_morgan(a: Pattern, b: Pattern, q: list[Token], k: list[Token]) -> None:
    assert torch.equal(allowed(~(a & b), q, k), allowed(~a | ~b, q, k))
    assert torch.equal(allowed(~(a | b), q, k), allowed(~a & ~b, q, k))


@settings(max_examples=200)
@given(patterns, groups, groups)
def test_block_verdicts_never_contradict_the_rule(pattern: Pattern, q: list[Token], k: list[Token]) -> None:
    pairs = [holds(pattern, x, y) for x in q for y in k]
    x, y = extent_of(q), extent_of(k)
    maybe, surely = pattern.block(x, y)
    assert bool(maybe) or not any(pairs)
    assert not bool(surely) or all(pairs)
    many = pattern.block(Extent(*(torch.tensor([[v]]) for v in x)), Extent(*(torch.tensor([v, v]) for v in y)))
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
        (window(8) | global_tokens(64), (0, 63), (512, 575), (True, True)),
        (window(8) | global_tokens(64), (64, 127), (512, 575), (False, False)),
    ],
)
def test_blocks_are_decided_where_they_can_be(pattern: Pattern, q: tuple, k: tuple, verdict: tuple) -> None:
    assert pattern.block(Extent(*q), Extent(*k)) == verdict


@settings(max_examples=40)
@given(patterns, st.sampled_from([0, 1, 5, 63, 64, 65, 130, 200]))
def test_pairs_is_the_sum_of_the_mask(pattern: Pattern, n: int) -> None:
    assert pattern.pairs(n) == int(pattern.mask(n).sum())


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
    ],
)
def test_pairs_of_long_sequences_without_their_mask(pattern: Pattern, pairs: object) -> None:
    n = 100_000  # a mask would take 10 GB
    assert pattern.pairs(n) == pairs(n)  # type: ignore[operator]


@given(patterns)
def test_json_round_trip(pattern: Pattern) -> None:
    again = Pattern.from_json(pattern.to_json())
    assert again == pattern and hash(again) == hash(pattern) and again.to_json() == pattern.to_json()


@given(patterns, st.integers(1, 9), st.integers(1, 6))
def test_picture_is_xml_with_a_cell_for_every_pair(pattern: Pattern, n: int, cell: int) -> None:
    root = ET.fromstring(pattern.picture(n, cell))
    mask = torch.zeros(n, n, dtype=torch.bool)
    for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y, width, height = (int(rect.attrib[a]) for a in ("x", "y", "width", "height"))
        assert height == cell and x % cell == y % cell == width % cell == 0
        assert not mask[y // cell, x // cell : (x + width) // cell].any()
        mask[y // cell, x // cell : (x + width) // cell] = True
    assert torch.equal(mask, pattern.mask(n))
    assert root.attrib["viewBox"] == f"0 0 {n * cell} {n * cell}"


def test_picture_of_a_pattern_with_text_in_it_is_valid_xml() -> None:
    class Labelled(Full, kind="labelled"):
        label: str = "a < b & c"

    title = ET.fromstring(Labelled().picture(2)).find("{http://www.w3.org/2000/svg}title")
    assert title is not None and "a < b & c" in (title.text or "")


def test_composition_simplifies() -> None:
    a, b, c = causal(), window(3), sinks(1)
    assert full() & a == a == a & full()
    assert ~~a == a
    assert (a & b) & c == a & (b & c) == And(parts=(a, b, c))
    assert (a | b) | c == a | (b | c) == Or(parts=(a, b, c))
    assert And(parts=(a, b, a)) == a & b


def test_mask_of_the_familiar_patterns() -> None:
    assert causal().mask(3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert (causal() & window(2)).mask(4).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert (causal() | prefix(2)).mask(3).int().tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    assert window(1).mask(2, 3).int().tolist() == [[1, 0, 0], [0, 1, 0]]


def test_a_picture_of_a_layout_has_its_roles_in_it() -> None:
    layout = Layout.full(4).with_roles(torch.tensor([[0, 0, 0, 1]]) * Role.GLOBAL)
    pattern = window(1) | global_tokens()
    assert pattern.mask(layout).int().tolist() == [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]]
    assert pattern.picture(layout).count("<rect") == 2 + 2 + 1 + 1
    assert pattern.mask(4).int().tolist() == torch.eye(4).int().tolist(), "no role, no global token"


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
        (lambda: Pattern.from_dict({"kind": "casual"}), "did you mean 'causal'"),
        (lambda: Pattern.from_dict({"kind": "and", "parts": []}), "at least 1 item"),
    ],
)
def test_wrong_values(make: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()  # type: ignore[operator]
