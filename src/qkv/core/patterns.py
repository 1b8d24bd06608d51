"""Who may look at whom: patterns as values, composed with `&`, `|` and `~`.

One object has four uses: the mask (`allowed`), a conservative block map that lets a kernel skip work (`block`, made from
intervals, never from an n×n mask), the exact number of score pairs (`pairs`) and the picture (`picture`). A pattern
speaks of positions, segments and roles. That padding sees nothing, is seen by nothing, and that segments are isolated,
is not a pattern's business: `attend` always sees to both.
"""

from __future__ import annotations

import html
import json
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from .layout import Layout, Role, View
from .spec import Spec


class Extent(NamedTuple):
    """Inclusive bounds within which a block of tokens lies: Python numbers, or tensors that broadcast like a `View`."""

    low: Any
    high: Any
    segment_low: Any = 0
    segment_high: Any = 0
    any_role: Any = 0  # bits that some token of the block has
    all_role: Any = 0  # bits that every token of the block has


Verdict = tuple[Any, Any]  # (some pair of the two blocks may be allowed, every pair surely is)


class Pattern(Spec, role="pattern"):
    """A rule about pairs of tokens. A new one needs `allowed`; with `block` it also becomes fast."""

    text: ClassVar[
        str
    ]  # the canonical JSON, made once: what a custom operator is given, and what equal patterns share.

    def model_post_init(self, context: Any) -> None:
        # Straight into the instance's dictionary, where a graph compiler finds it without pydantic's attribute hooks.
        self.__dict__["text"] = json.dumps(self.to_dict(), sort_keys=True)

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        """Boolean, broadcastable to (B, T, S); True where the query may see the key.

        With `head` of shape (H, 1, 1) the views carry a head axis and the answer broadcasts to (B, H, T, S).
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what it allows")

    def block(self, q: Extent, k: Extent) -> Verdict:
        """Three-valued logic on blocks: (maybe, surely). Unsure is always right, only slower."""
        return q.low == q.low, q.low != q.low

    @property
    def positional(self) -> bool:
        """Whether the rule depends on where tokens are, so that unequal lengths need layouts."""
        return True

    @property
    def per_head(self) -> bool:
        """Whether the rule differs from head to head."""
        return False

    def __and__(self, other: Pattern) -> Pattern:
        if isinstance(self, Full) or isinstance(other, Full):
            return other if isinstance(self, Full) else self
        return And(parts=(*_parts(self, And), *_parts(other, And)))

    def __or__(self, other: Pattern) -> Pattern:
        return Or(parts=(*_parts(self, Or), *_parts(other, Or)))

    def __invert__(self) -> Pattern:
        return self.part if isinstance(self, Not) else Not(part=self)

    # -- mask, count, picture -----------------------------------------------------------------------------------

    def mask(self, n: int | Layout, m: int | None = None) -> Tensor:
        """The (n, m) boolean mask over contiguous positions, or over a layout's first row; to look at and to test with."""
        layout = n if isinstance(n, Layout) else Layout.full(n)
        keys = layout if m is None else Layout.full(m)
        allowed = self.allowed(layout.queries(), keys.keys())
        shape = torch.broadcast_shapes(allowed.shape, (1, layout.shape[1], keys.shape[1]))
        return allowed.expand(shape)[0]

    def pairs(self, n: int) -> int:
        """How many (query, key) pairs the pattern allows over n contiguous positions: exact, without an n×n mask.

        A quadtree: blocks that are surely all or none are counted at once, the others split down to 64×64.
        """
        side = 64 << max(0, (max(n, 1) - 1).bit_length() - 6)
        q = k = torch.zeros(1, dtype=torch.long)
        total = 0
        while len(q):
            high_q, high_k = (q + side).clamp(max=n) - 1, (k + side).clamp(max=n) - 1
            maybe, surely = (_as_mask(x, q) for x in self.block(Extent(q, high_q), Extent(k, high_k)))
            total += int(((high_q - q + 1) * (high_k - k + 1))[surely].sum())
            q, k = q[maybe & ~surely], k[maybe & ~surely]
            if side == 64:
                return total + _count(self, q, k, side, n)
            side //= 2
            step = torch.tensor([[0, 0], [0, side], [side, 0], [side, side]])
            q, k = (q[:, None] + step[:, 0]).flatten(), (k[:, None] + step[:, 1]).flatten()
            q, k = q[inside := (q < n) & (k < n)], k[inside]
        return total

    def picture(self, n: int | Layout = 32, cell: int = 8) -> str:
        """The mask as SVG: queries down, keys across, filled where allowed."""
        rows = self.mask(n).tolist()
        n = len(rows)
        runs = [
            f'<rect x="{start * cell}" y="{i * cell}" width="{(stop - start) * cell}" height="{cell}"/>'
            for i, row in enumerate(rows)
            for start, stop in _runs(row)
        ]
        size = n * cell
        grid = "".join(f"M{i * cell} 0V{size}M0 {i * cell}H{size}" for i in range(n + 1))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" width="{size}" height="{size}">'
            f'<title>{html.escape(str(self))}</title><g fill="#4269d0">{"".join(runs)}</g>'
            f'<path d="{grid}" stroke="#8884" stroke-width="0.5"/></svg>'
        )


def _count(pattern: Pattern, q: Tensor, k: Tensor, side: int, n: int, at_once: int = 4096) -> int:
    """Allowed pairs inside side×side tiles whose corners are given, evaluated pair by pair."""
    step, total = torch.arange(side), 0
    for i in range(0, len(q), at_once):
        rows, cols = q[i : i + at_once, None, None] + step[:, None], k[i : i + at_once, None, None] + step
        zero = torch.zeros((), dtype=torch.long)
        allowed = pattern.allowed(View(rows, zero, zero, rows[..., None]), View(cols, zero, zero, cols[..., None]))
        total += int((allowed & (rows < n) & (cols < n)).sum())
    return total


def _as_mask(value: Any, like: Tensor) -> Tensor:
    return value.expand_as(like) if isinstance(value, Tensor) else torch.full_like(like, bool(value), dtype=torch.bool)


def _runs(row: list[bool]) -> list[tuple[int, int]]:
    edges = [i for i in range(len(row) + 1) if (i < len(row) and row[i]) != (i > 0 and row[i - 1])]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _parts(pattern: Pattern, cls: type[And] | type[Or]) -> tuple[Pattern, ...]:
    return pattern.parts if isinstance(pattern, cls) else (pattern,)


def _not(value: Any) -> Any:
    return ~value if isinstance(value, Tensor) else not value


# -- the patterns -----------------------------------------------------------------------------------------------------


class Full(Pattern, kind="full"):
    """Every token sees every token."""

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return torch.ones((), dtype=torch.bool, device=q.position.device)

    def block(self, q: Extent, k: Extent) -> Verdict:
        return q.low == q.low, q.low == q.low

    @property
    def positional(self) -> bool:
        return False


class Causal(Pattern, kind="causal"):
    """A token sees itself and what comes before it: k ≤ q."""

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return k.position <= q.position

    def block(self, q: Extent, k: Extent) -> Verdict:
        return k.low <= q.high, k.high <= q.low


class Window(Pattern, kind="window"):
    """A token sees `size` tokens back, itself included (q − k < size), and as many ahead (k − q < ahead).

    `ahead` counts the token itself as well and is `size` by default, which makes the window symmetric. With
    `causal()`, `window(w)` is the sliding window of Mistral: w tokens in all.
    """

    size: int = Field(gt=0)
    ahead: int | None = Field(default=None, gt=0)

    @property
    def _ahead(self) -> int:
        return self.size if self.ahead is None else self.ahead

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        back = q.position - k.position
        return (back < self.size) & (back > -self._ahead)

    def block(self, q: Extent, k: Extent) -> Verdict:
        least, most = q.low - k.high, q.high - k.low
        return (least < self.size) & (most > -self._ahead), (most < self.size) & (least > -self._ahead)


class Sinks(Pattern, kind="sinks"):
    """Every token sees the first `count` positions (Xiao et al. 2023, StreamingLLM)."""

    count: int = Field(gt=0)

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return k.position < self.count

    def block(self, q: Extent, k: Extent) -> Verdict:
        return k.low < self.count, k.high < self.count


class Prefix(Pattern, kind="prefix"):
    """Every token sees the prefix: the first `length` positions, or the tokens with role PREFIX when no length is given.

    `causal() | prefix(n)` is the prefix language model (Raffel et al. 2020, figure 4).
    """

    length: int | None = Field(default=None, gt=0)

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return k.position < self.length if self.length is not None else (k.role & Role.PREFIX) != 0

    def block(self, q: Extent, k: Extent) -> Verdict:
        if self.length is not None:
            return k.low < self.length, k.high < self.length
        return (k.any_role & Role.PREFIX) != 0, (k.all_role & Role.PREFIX) != 0


class Global(Pattern, kind="global"):
    """Global tokens see every token and are seen by every one: the first `first` positions, or the tokens with role GLOBAL
    when no number is given.

    `window(w) | global_tokens()` is the pattern of Longformer (Beltagy et al. 2020, §3.1).
    """

    first: int | None = Field(default=None, gt=0)

    def holds(self, view: View) -> Tensor:
        """Boolean, in the shape of the view or broadcastable to it: which tokens are global."""
        return view.position < self.first if self.first is not None else (view.role & Role.GLOBAL) != 0

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return self.holds(q) | self.holds(k)

    def block(self, q: Extent, k: Extent) -> Verdict:
        if self.first is not None:
            return (q.low < self.first) | (k.low < self.first), (q.high < self.first) | (k.high < self.first)
        maybe, surely = q.any_role | k.any_role, q.all_role | k.all_role
        return (maybe & Role.GLOBAL) != 0, (surely & Role.GLOBAL) != 0


class Documents(Pattern, kind="documents"):
    """A token sees its own segment only. `attend` isolates segments anyway; this says so, and composes."""

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return q.segment == k.segment

    def block(self, q: Extent, k: Extent) -> Verdict:
        maybe = (q.segment_low <= k.segment_high) & (k.segment_low <= q.segment_high)
        surely = (q.segment_low == q.segment_high) & (k.segment_low == k.segment_high)
        return maybe, maybe & surely


class _Several(Pattern):
    """Parts that are joined pair by pair, and block by block, by one operation of logic."""

    parts: tuple[Pattern, ...] = Field(min_length=1)

    @field_validator("parts")
    @classmethod
    def _once(cls, parts: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
        return tuple(dict.fromkeys(parts))

    def join(self, a: Any, b: Any) -> Any:
        raise NotImplementedError

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return reduce(self.join, [part.allowed(q, k, head) for part in self.parts])

    def block(self, q: Extent, k: Extent) -> Verdict:
        verdicts = [part.block(q, k) for part in self.parts]
        return reduce(self.join, [maybe for maybe, _ in verdicts]), reduce(
            self.join, [surely for _, surely in verdicts]
        )

    @property
    def positional(self) -> bool:
        return any(part.positional for part in self.parts)

    @property
    def per_head(self) -> bool:
        return any(part.per_head for part in self.parts)


class And(_Several, kind="and"):
    """What every part allows."""

    def join(self, a: Any, b: Any) -> Any:
        return a & b


class Or(_Several, kind="or"):
    """What some part allows."""

    def join(self, a: Any, b: Any) -> Any:
        return a | b


class Not(Pattern, kind="not"):
    """What the part does not allow (within valid tokens of one segment)."""

    part: Pattern

    @model_validator(mode="before")
    @classmethod
    def _from_part(cls, data: Any) -> Any:
        return {"part": data} if isinstance(data, Pattern) else data

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return ~self.part.allowed(q, k, head)

    def block(self, q: Extent, k: Extent) -> Verdict:
        maybe, surely = self.part.block(q, k)
        return _not(surely), _not(maybe)

    @property
    def positional(self) -> bool:
        return self.part.positional

    @property
    def per_head(self) -> bool:
        return self.part.per_head


# The short spellings, as in `causal() & window(256) | sinks(4)`.


def full() -> Pattern:
    return Full()


def causal() -> Pattern:
    return Causal()


def window(size: int, ahead: int | None = None) -> Pattern:
    return Window(size=size, ahead=ahead)


def sinks(count: int) -> Pattern:
    return Sinks(count=count)


def prefix(length: int | None = None) -> Pattern:
    return Prefix(length=length)


def global_tokens(first: int | None = None) -> Pattern:
    return Global(first=first)


def documents() -> Pattern:
    return Documents()
