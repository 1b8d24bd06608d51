"""`Plan`: masks, dense biases and position tables, computed once per forward pass and shared by all layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import is_
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...core.layout import Layout, View
from ..patterns.basic import And, Causal, Full, Interval, Pattern

Value = TypeVar("Value")


class Plan:
    """A cache for one forward pass. `once(what, about, make)` calls `make` the first time only.

    The objects `about` which it is are compared by identity, in a list: graph compilers can trace that, but not ids. It is
    no dataclass, whose tensors FSDP2 would replace, such as trained biases.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[str, tuple[Any, ...], Any]] = []

    def once(self, what: str, about: tuple[Any, ...], make: Callable[[], Value]) -> Value:
        for key, objects, value in self._entries:
            if key == what and len(objects) == len(about) and all(map(is_, objects, about)):
                return value
        value = make()
        self._entries.append((what, about, value))
        return value

    def mask(self, pattern: Pattern, layout: Layout, kv_layout: Layout, n_heads: int) -> Tensor | None:
        """`allowed_mask`, computed once for equal patterns."""
        what = f"mask {n_heads if pattern.per_head else 1} {pattern.text}"
        return self.once(what, (layout, kv_layout), partial(allowed_mask, pattern, layout, kv_layout, n_heads))


def host_interval(layout: Layout) -> Interval | None:
    """The interval of the tokens' positions; None if the host can't tell."""
    if layout.start is None or not layout.sequential or layout.segments is not None or layout.positions.shape[-1] != 1:
        return None
    roles = 0 if layout.roles is None else -1  # unknown: any token may have any role, and no role is common to all
    return Interval(layout.start, layout.start + layout.positions.shape[1] - 1, any_role=roles)


def first_position(layout: Layout) -> int:
    """The first position of unpadded tokens of one segment, without roles, at consecutive positions; else −1."""
    plain = layout.padding == "none" and layout.roles is None and host_interval(layout) is not None
    return layout.start if plain and layout.start is not None else -1


def needed_parts(pattern: Pattern, layout: Layout, kv_layout: Layout) -> tuple[Pattern, ...]:
    """The parts (of an And) that may forbid some pair of these layouts, decided on the host."""
    q, k = host_interval(layout), host_interval(kv_layout)
    needed: list[Pattern] = []
    for part in pattern.parts if isinstance(pattern, And) else (pattern,):
        allows_all = isinstance(part, Full) if q is None or k is None else bool(part.block(q, k)[1])
        if not allows_all:
            needed.append(part)
    return tuple(needed)


def is_aligned_causal(parts: tuple[Pattern, ...], layout: Layout, kv_layout: Layout) -> bool:
    """Whether the mask is exactly the lower triangle over indices (apart from padding on the right)."""
    if len(parts) != 1 or not isinstance(parts[0], Causal) or not _plain_rows(layout, ("none", "right")):
        return False
    same = layout.shape[1] == kv_layout.shape[1] and layout.start is not None and layout.start == kv_layout.start
    return layout is kv_layout or (same and same_segment(layout, kv_layout) and _plain_rows(kv_layout, ("none",)))


def _plain_rows(layout: Layout, padding: tuple[str, ...]) -> bool:
    """Whether each row is one run of consecutive positions of one segment, with this kind of padding."""
    return layout.sequential and layout.one_segment and layout.padding in padding


def allowed_mask(pattern: Pattern, layout: Layout, kv_layout: Layout, n_heads: int) -> Tensor | None:
    """The boolean mask (B or 1, H or 1, T or 1, S) of pattern, segments and padded *keys*; None if every pair is allowed.

    The caller zeroes the rows of padded queries, which keeps a padding mask at (B, 1, 1, S).
    """
    needed, one_segment = needed_parts(pattern, layout, kv_layout), same_segment(layout, kv_layout)
    parts: list[Tensor] = []
    if needed or not one_segment:
        q, k = layout.queries(), kv_layout.keys()
        for rule in needed:
            parts.append(allowed_by_head(rule, q, k, n_heads))
        if not one_segment:
            parts.append(_with_heads(q.segment == k.segment))
    if kv_layout.padding != "none":
        parts.append(kv_layout.valid[:, None, None, :])
    if not parts:
        return None
    out = parts[0]
    for part in parts[1:]:
        out = out & part
    return out


def same_segment(layout: Layout, kv_layout: Layout) -> bool:
    """Whether the host knows that all queries and keys of a row are in one segment."""
    return (layout.segments is None and kv_layout.segments is None) or (layout is kv_layout and layout.one_segment)


def allowed_by_head(pattern: Pattern, q: View, k: View, n_heads: int) -> Tensor:
    """`pattern.allowed` with a head axis: (B or 1, H or 1, T, S)."""
    if not pattern.per_head:
        return _with_heads(pattern.allowed(q, k))
    heads = torch.arange(n_heads, device=q.position.device)[:, None, None]
    q, k = (View(*(t.unsqueeze(1) if t.ndim else t for t in view)) for view in (q, k))
    return pattern.allowed(q, k, heads)


def _with_heads(mask: Tensor) -> Tensor:
    """(B, T, S), or fewer axes, → (B, 1, T, S)."""
    return mask.reshape((1,) * (3 - mask.ndim) + tuple(mask.shape)).unsqueeze(1)
