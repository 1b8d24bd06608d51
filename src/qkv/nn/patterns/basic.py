"""Basic attention patterns (causal, window, sinks, prefix, global tokens, documents, media), and the names of all others.

Patterns combine with `&`, `|` and `~`, as in `causal() & window(256) | sinks(4)`.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from ...core.layout import MEDIUM_BIT, Role, View
from .algebra import And, ByHead, Full, Not, Or, Pattern, by_head, full
from .bigbird import BigBird
from .grids import Axial, GridWindows, Neighborhood, axial, grid_windows, neighborhood
from .intervals import BlockMask, Interval, between, difference
from .sparse import (
    Chunks,
    Dilated,
    Fixed,
    RandomBlocks,
    Strided,
    blocks,
    chunks,
    dilated,
    fixed,
    random_blocks,
    strided,
)

__all__ = [
    "And",
    "Axial",
    "BigBird",
    "BlockMask",
    "ByHead",
    "Causal",
    "Chunks",
    "Dilated",
    "Documents",
    "Fixed",
    "Full",
    "Global",
    "GridWindows",
    "Interval",
    "Media",
    "Neighborhood",
    "Not",
    "Or",
    "Pattern",
    "Prefix",
    "RandomBlocks",
    "Sinks",
    "Strided",
    "Window",
    "axial",
    "blocks",
    "by_head",
    "causal",
    "chunks",
    "dilated",
    "documents",
    "fixed",
    "full",
    "global_tokens",
    "grid_windows",
    "media",
    "neighborhood",
    "prefix",
    "random_blocks",
    "sinks",
    "strided",
    "window",
]


class Causal(Pattern, kind="causal"):
    """A token sees itself and all tokens before it: k ≤ q (Vaswani et al. 2017, §3.2.3)."""

    period: ClassVar[tuple[int, int]] = (1, 0)

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return k.position <= q.position

    def block(self, q: Interval, k: Interval) -> BlockMask:
        return k.low <= q.high, k.high <= q.low

    def subsampled(self, d: int) -> Pattern:
        return self


class Window(Pattern, kind="window"):
    """A token sees `size` tokens back, itself included (q − k < size), and as many ahead (k − q < ahead); Beltagy et al.
    2020, §3.1.

    `ahead` counts the token itself as well and is `size` by default, which makes the window symmetric. With
    `causal()`, `window(w)` is the sliding window of Mistral: w tokens in all.
    """

    period: ClassVar[tuple[int, int]] = (1, 0)

    size: int = Field(gt=0)
    ahead: int | None = Field(default=None, gt=0)

    @property
    def _ahead(self) -> int:
        return self.size if self.ahead is None else self.ahead

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        back = q.position - k.position
        return (back < self.size) & (back > -self._ahead)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        return between(difference(q, k), 1 - self._ahead, self.size - 1)

    @property
    def reach(self) -> int:
        return self.size

    def subsampled(self, d: int) -> Pattern:
        return Window(size=-(-self.size // d), ahead=-(-self._ahead // d))


class Sinks(Pattern, kind="sinks"):
    """Every token sees the first `count` positions (Xiao et al. 2023, StreamingLLM)."""

    count: int = Field(gt=0)

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return k.position < self.count

    def block(self, q: Interval, k: Interval) -> BlockMask:
        return k.low < self.count, k.high < self.count

    @property
    def period(self) -> tuple[int, int]:
        return 1, self.count


class Prefix(Pattern, kind="prefix"):
    """Every token sees the prefix: the first `length` positions, or the tokens with role PREFIX if no length is given. With
    `within`, only tokens of the prefix do.

    `causal() | prefix(n)` is the prefix language model (Raffel et al. 2020, figure 4). With a window,
    `causal() & window(w) | prefix(within=True)`, tokens after the prefix see what is in the window (PaliGemma 2, Steiner
    et al. 2024).
    """

    length: int | None = Field(default=None, gt=0)
    within: bool = False

    def is_prefix(self, view: View) -> Tensor:
        """Boolean, broadcastable to the view: which tokens are the prefix."""
        return view.position < self.length if self.length is not None else (view.role & Role.PREFIX) != 0

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return self.is_prefix(q) & self.is_prefix(k) if self.within else self.is_prefix(k)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        maybe, surely = self._in_prefix(k)
        if not self.within:
            return maybe, surely
        some, every = self._in_prefix(q)
        return maybe & some, surely & every

    def _in_prefix(self, tokens: Interval) -> BlockMask:
        if self.length is not None:
            return tokens.low < self.length, tokens.high < self.length
        return (tokens.any_role & Role.PREFIX) != 0, (tokens.all_role & Role.PREFIX) != 0

    @property
    def period(self) -> tuple[int, int]:
        return 1, self.length or 0


def reads_prefix(pattern: Pattern | None) -> bool:
    """Whether a pattern, or a part of it, depends on which tokens have the role PREFIX."""
    if isinstance(pattern, Prefix):
        return pattern.length is None
    return any(map(reads_prefix, getattr(pattern, "operands", ())))


class Global(Pattern, kind="global"):
    """Global tokens see all tokens and are seen by all: the first `first` positions, or the tokens with role GLOBAL if no
    number is given.

    `window(w) | global_tokens()` is the pattern of Longformer (Beltagy et al. 2020, §3.1).
    """

    first: int | None = Field(default=None, gt=0)

    def is_global(self, view: View) -> Tensor:
        """Boolean, broadcastable to the view: which tokens are global."""
        return view.position < self.first if self.first is not None else (view.role & Role.GLOBAL) != 0

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return self.is_global(q) | self.is_global(k)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        if self.first is not None:
            return (q.low < self.first) | (k.low < self.first), (q.high < self.first) | (k.high < self.first)
        maybe, surely = q.any_role | k.any_role, q.all_role | k.all_role
        return (maybe & Role.GLOBAL) != 0, (surely & Role.GLOBAL) != 0

    @property
    def period(self) -> tuple[int, int]:
        return 1, self.first or 0


class Documents(Pattern, kind="documents"):
    """A token sees only its own segment (Krell et al. 2021). `attend` isolates segments anyway; this pattern is for
    combinations."""

    period: ClassVar[tuple[int, int]] = (1, 0)

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return q.segment == k.segment

    def block(self, q: Interval, k: Interval) -> BlockMask:
        maybe = (q.segment_low <= k.segment_high) & (k.segment_low <= q.segment_high)
        surely = (q.segment_low == q.segment_high) & (k.segment_low == k.segment_high)
        return maybe, maybe & surely


class Media(Pattern, kind="media"):
    """Tokens of one medium, such as a picture, see each other; other tokens see nothing. The layout says which these are.

    `causal() | media()` is the pattern of Gemma 3: bidirectional within a picture, causal elsewhere (Gemma Team 2025).
    """

    period: ClassVar[tuple[int, int]] = (1, 0)

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        of_q, of_k = q.role >> MEDIUM_BIT, k.role >> MEDIUM_BIT
        return (of_q == of_k) & (of_k != 0)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        """A number that both blocks may have has all bits that every token has, and no bit that no token has."""
        some, every = q.any_role & k.any_role, q.all_role | k.all_role
        differing = (q.any_role & ~q.all_role) | (k.any_role & ~k.all_role)
        maybe = ((every & ~some) >> MEDIUM_BIT == 0) & (some >> MEDIUM_BIT != 0)
        return maybe, maybe & (differing >> MEDIUM_BIT == 0)


_CAUSAL = Causal()


def causal() -> Pattern:
    return _CAUSAL


def window(size: int, ahead: int | None = None) -> Pattern:
    return Window(size=size, ahead=ahead)


def sinks(count: int) -> Pattern:
    return Sinks(count=count)


def prefix(length: int | None = None, within: bool = False) -> Pattern:
    return Prefix(length=length, within=within)


def global_tokens(first: int | None = None) -> Pattern:
    return Global(first=first)


def documents() -> Pattern:
    return Documents()


def media() -> Pattern:
    return Media()
