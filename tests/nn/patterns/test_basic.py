"""Patterns: composition against brute force, verdicts on blocks, the count, the JSON form and the picture."""

from __future__ import annotations

import struct
import warnings
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qkv.core.layout import Layout, Role, View
from qkv.nn.patterns import counts
from qkv.nn.patterns.basic import (
    And,
    ByHead,
    Causal,
    Chunks,
    Dilated,
    Documents,
    Fixed,
    Full,
    Global,
    Interval,
    Not,
    Or,
    Pattern,
    Prefix,
    Sinks,
    Strided,
    Window,
    by_head,
    causal,
    chunks,
    dilated,
    documents,
    fixed,
    full,
    global_tokens,
    prefix,
    random_blocks,
    sinks,
    strided,
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
    st.builds(dilated, st.integers(1, 4), st.integers(1, 4), st.none() | st.integers(1, 3)),
    st.builds(strided, st.integers(1, 5), st.sampled_from(["both", "local", "far"])),
    st.integers(1, 5).flatmap(
        lambda size: st.builds(fixed, st.just(size), st.integers(1, size), st.sampled_from(["both", "local", "far"]))
    ),
    st.builds(chunks, st.integers(1, 5), st.integers(0, 2), st.integers(0, 2)),
)
patterns = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(by_head, inner, inner),
        inner.map(lambda a: ~a),
    ),
    max_leaves=5,
)
roles = st.sampled_from([0, int(Role.PREFIX), int(Role.CLASS), int(Role.GLOBAL), int(Role.PREFIX | Role.GLOBAL)])
tokens = st.tuples(st.integers(0, 12), st.integers(0, 2), roles)
groups = st.lists(tokens, min_size=1, max_size=5)


def holds(pattern: Pattern, q: Token, k: Token, head: int = 0) -> bool:
    """The rule for one pair, written out again from the papers' definitions."""
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
        case Dilated(size=size, dilation=step, ahead=ahead):
            back = [q[0] - i * step for i in range(size)]
            return k[0] in back + [q[0] + i * step for i in range(size if ahead is None else ahead)]
        case Strided(stride=stride, part=part):
            far = any(abs(q[0] - k[0]) == i * stride for i in range(20))
            return {"local": abs(q[0] - k[0]) <= stride, "far": far}.get(part, abs(q[0] - k[0]) <= stride or far)
        case Fixed(block_size=size, summary=summary, part=part):
            local, far = q[0] // size == k[0] // size, k[0] % size in range(size - summary, size)
            return {"local": local, "far": far}.get(part, local or far)
        case Chunks(size=size, back=back, ahead=ahead):
            return k[0] // size in range(q[0] // size - back, q[0] // size + ahead + 1)
        case And(parts=parts):
            return all(holds(part, q, k, head) for part in parts)
        case Or(parts=parts):
            return any(holds(part, q, k, head) for part in parts)
        case ByHead(parts=parts):
            return holds(parts[head % len(parts)], q, k, head)
        case Not(part=part):
            return not holds(part, q, k, head)
    raise AssertionError(pattern)


def layout_of(group: list[Token]) -> Layout:
    position, segment, role = torch.tensor(group).T
    return Layout(position[None], segment[None], role[None], one_segment=False)


def interval_of(group: list[Token]) -> Interval:
    position, segment, role = zip(*group, strict=True)
    any_role, all_role = 0, ~0
    for bits in role:
        any_role, all_role = any_role | bits, all_role & bits
    return Interval(min(position), max(position), min(segment), max(segment), any_role, all_role)


def allowed(pattern: Pattern, q: list[Token], k: list[Token]) -> Tensor:
    mask = pattern.allowed(layout_of(q).queries(), layout_of(k).keys())
    return mask.expand(1, len(q), len(k))[0]


@given(patterns, groups, groups)
def test_allowed_is_the_rule_pair_by_pair(pattern: Pattern, q: list[Token], k: list[Token]) -> None:
    assert allowed(pattern, q, k).tolist() == [[holds(pattern, x, y) for y in k] for x in q]


@given(patterns, groups, groups)
def test_allowed_in_each_head(pattern: Pattern, q: list[Token], k: list[Token]) -> None:
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


def by_heads(pattern: Pattern, n: int) -> Tensor:
    """(heads, n, n), as many heads as there are rules."""
    at = torch.arange(n)
    return counts.evaluate(pattern, at[None, :, None], at[None, None])[0]


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
def test_a_recurrence_is_one(pattern: Pattern, n: int) -> None:
    assert pattern.period is not None
    period, start = pattern.period
    mask = by_heads(pattern, n)[:, start:, start:]
    assert torch.equal(mask[:, :-period, :-period], mask[:, period:, period:])
    assert counts._by_difference(pattern, n, period, start) == int(by_heads(pattern, n).sum())


@given(patterns, st.integers(1, 30))
def test_nothing_is_seen_beyond_reach(pattern: Pattern, n: int) -> None:
    if pattern.reach is not None:
        assert not by_heads(pattern, n).tril(-pattern.reach).any()


@given(patterns, st.integers(0, 12), st.integers(1, 12))
def test_later_tokens_change_nothing_for_earlier_ones(pattern: Pattern, start: int, n: int) -> None:
    """What a decoder with a cache asks is what one pass over all asks."""
    whole = Layout.full(start + n)
    mask = pattern.allowed(whole.slice(start, start + n).queries(), whole.keys()).expand(1, n, start + n)[0]
    assert torch.equal(mask, pattern.mask(start + n)[start:])


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
        (fixed(500, 3), lambda n: n * 500 + n * 3 * (n // 500 - 1)),
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


@given(patterns)
def test_json_round_trip(pattern: Pattern) -> None:
    again = Pattern.from_json(pattern.to_json())
    assert again == pattern and hash(again) == hash(pattern) and again.to_json() == pattern.to_json()


@given(patterns, st.integers(1, 9), st.integers(1, 6))
def test_picture_is_xml_with_a_cell_for_every_pair(pattern: Pattern, n: int, cell: int) -> None:
    picture = pattern.picture(n, cell)
    assert torch.equal(mask_shown(picture, n, cell), pattern.mask(n))
    assert ET.fromstring(picture).attrib["viewBox"] == f"0 0 {n * cell} {n * cell}"


def mask_shown(picture: str, n: int, cell: int) -> Tensor:
    """The mask that a picture shows, no cell of it filled twice."""
    root, mask = ET.fromstring(picture), torch.zeros(n, n, dtype=torch.bool)
    for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y, width, height = (int(rect.attrib[a]) for a in ("x", "y", "width", "height"))
        assert height == cell and x % cell == y % cell == width % cell == 0
        assert not mask[y // cell, x // cell : (x + width) // cell].any()
        mask[y // cell, x // cell : (x + width) // cell] = True
    return mask


def test_picture_of_a_pattern_with_text_in_it_is_valid_xml() -> None:
    class Labelled(Full, kind="labelled"):
        label: str

    title = ET.fromstring(Labelled(label="a < b & c").picture(2)).find("{http://www.w3.org/2000/svg}title")
    assert title is not None and "a < b & c" in (title.text or "")


def test_png_holds_the_mask() -> None:
    pattern, cell = causal() & window(3), 3
    data = pattern.picture(7, cell, format="png")
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    found, at = {}, 8
    while at < len(data):
        (size,), name = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        found[name] = data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(name + found[name])
        at += 12 + size
    assert struct.unpack(">IIBB", found[b"IHDR"][:10]) == (21, 21, 8, 3) and found[b"IEND"] == b""
    lines = torch.tensor(list(zlib.decompress(found[b"IDAT"]))).view(21, 22)
    assert not lines[:, 0].any(), "no scanline is filtered"
    assert torch.equal(lines[::cell, 1::cell].bool(), pattern.mask(7))


def test_pictures_are_saved_by_their_ending(tmp_path: Path) -> None:
    causal().save_picture(tmp_path / "a.svg", 5)
    causal().save_picture(tmp_path / "a.PNG", 5)
    assert (tmp_path / "a.svg").read_text() == causal().picture(5)
    assert (tmp_path / "a.PNG").read_bytes() == causal().picture(5, format="png")
    with pytest.raises(ValueError, match=r"must end in .svg or .png, not 'a.gif'"):
        causal().save_picture("a.gif")
    with pytest.raises(ValueError, match="'svg' or 'png', not 'gif'"):
        causal().picture(5, format="gif")  # type: ignore[call-overload]


def test_blind_queries_of_a_long_row() -> None:
    n = 100_000
    assert (causal() & ~window(3)).fully_masked(n) == [0, 1, 2]
    assert (~causal()).fully_masked(n) == [n - 1]
    assert (causal() & strided(64, "far") & ~window(1)).fully_masked(n) == list(range(64))
    assert (~full()).fully_masked(5) == [0, 1, 2, 3, 4]
    assert by_head(full(), causal() & ~window(1)).fully_masked(n) == [0], "one blind head is enough"


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


def test_pairs_of_sparse_patterns_grow_as_n_to_the_three_halves() -> None:
    for make in (strided, fixed):
        small, large = (causal() & make(side) for side in (64, 256))
        growth = large.pairs(256**2) / small.pairs(64**2)
        assert 63 < growth < 65, "16 times the tokens, 64 times the pairs"


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
    assert torch.equal(mask_shown(pattern.picture(layout), 4, 8), pattern.mask(layout))
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
def test_wrong_values(make: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()  # type: ignore[operator]
