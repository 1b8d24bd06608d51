"""What one forward pass computes once and every layer shares: masks, biases as tensors, position tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..core.layout import Layout, View
from ..patterns.basic import And, Causal, Full, Interval, Pattern

Made = TypeVar("Made")


class Plan:
    """A memo for one pass. `once(what, about, make)` makes a thing the first time that it is asked for.

    What a thing is about is compared by identity, in a list: a graph compiler sees through that, and not through ids.
    """

    def __init__(self) -> None:
        self._made: list[tuple[str, tuple[Any, ...], Any]] = []

    def once(self, what: str, about: tuple[Any, ...], make: Callable[[], Made]) -> Made:
        for known, objects, value in self._made:
            if (
                known == what
                and len(objects) == len(about)
                and all(a is b for a, b in zip(objects, about, strict=True))
            ):
                return value
        value = make()
        self._made.append((what, about, value))
        return value

    def mask(self, pattern: Pattern, layout: Layout, kv_layout: Layout, n_heads: int) -> Tensor | None:
        """`allowed_mask`, made once for equal patterns."""
        what = f"mask {n_heads if pattern.per_head else 1} {pattern.text}"
        return self.once(what, (layout, kv_layout), lambda: allowed_mask(pattern, layout, kv_layout, n_heads))


def host_interval(layout: Layout) -> Interval | None:
    """Within which positions the tokens lie, as far as the host knows."""
    if layout.start is None or not layout.sequential or layout.segments is not None or layout.positions.shape[-1] != 1:
        return None
    roles = 0 if layout.roles is None else -1  # unknown: any token may have any role, and no role is on all
    return Interval(layout.start, layout.start + layout.shape[1] - 1, any_role=roles)


def first_position(layout: Layout) -> int:
    """The first position, where the host knows that the others follow it and nothing else need be said; or −1."""
    plain = layout.padding == "none" and layout.roles is None and host_interval(layout) is not None
    return layout.start if plain and layout.start is not None else -1


def needed_parts(pattern: Pattern, layout: Layout, kv_layout: Layout) -> tuple[Pattern, ...]:
    """The parts (of an And) that do not surely hold for every pair of these layouts, decided on the host."""
    parts = pattern.parts if isinstance(pattern, And) else (pattern,)
    q, k = host_interval(layout), host_interval(kv_layout)
    if q is None or k is None:
        return tuple(part for part in parts if not isinstance(part, Full))
    return tuple(part for part in parts if not bool(part.block(q, k)[1]))


def is_aligned_causal(parts: tuple[Pattern, ...], layout: Layout, kv_layout: Layout) -> bool:
    """Whether the plain lower triangle over indices is exactly what is needed (padding, at the right, aside)."""
    if len(parts) != 1 or not isinstance(parts[0], Causal) or not _plain_rows(layout, ("none", "right")):
        return False
    same = layout.shape[1] == kv_layout.shape[1] and layout.start is not None and layout.start == kv_layout.start
    return layout is kv_layout or (same and same_segment(layout, kv_layout) and _plain_rows(kv_layout, ("none",)))


def _plain_rows(layout: Layout, padding: tuple[str, ...]) -> bool:
    """One run of consecutive positions a row, with nothing but the padding named."""
    return layout.sequential and layout.one_segment and layout.padding in padding


def allowed_mask(pattern: Pattern, layout: Layout, kv_layout: Layout, n_heads: int) -> Tensor | None:
    """The boolean mask (B or 1, H or 1, T or 1, S) of pattern, segments and padded *keys*; None where all is allowed.

    Padded queries are left to the caller, who zeroes their rows: that keeps a padding mask at (B, 1, 1, S).
    """
    q, k = layout.queries(), kv_layout.keys()
    parts = [allowed_by_head(part, q, k, n_heads) for part in needed_parts(pattern, layout, kv_layout)]
    if not same_segment(layout, kv_layout):
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
    """Whether the host knows that every query of a row is in the segment of every key of it."""
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
