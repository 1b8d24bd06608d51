"""Patterns to draw from, and their rules for one pair, written out again from the papers' definitions."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from qkv.core.layout import MEDIUM_BIT, Layout, Role
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
    Media,
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
    media,
    prefix,
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
    st.builds(prefix, st.none() | st.integers(1, 5), st.booleans()),
    st.just(media()),
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


flags = [0, int(Role.PREFIX), int(Role.CLASS), int(Role.GLOBAL), int(Role.PREFIX | Role.GLOBAL)]
roles = st.sampled_from([*flags, *(int(Role.MEDIUM) | number << MEDIUM_BIT for number in (1, 2, 3))])


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
        case Prefix(length=None, within=within):
            return bool(k[2] & (q[2] if within else -1) & Role.PREFIX)
        case Prefix(length=length, within=within):
            return (max(q[0], k[0]) if within else k[0]) < length  # type: ignore[operator]
        case Global(first=None):
            return bool((q[2] | k[2]) & Role.GLOBAL)
        case Global(first=first):
            return min(q[0], k[0]) < first  # type: ignore[operator]
        case Media():
            return k[2] >> MEDIUM_BIT == q[2] >> MEDIUM_BIT > 0
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


def by_heads(pattern: Pattern, n: int) -> Tensor:
    """(heads, n, n), as many heads as there are rules."""
    at = torch.arange(n)
    return counts.evaluate(pattern, at[None, :, None], at[None, None])[0]
