"""What a pattern is: a rule about pairs of tokens, and how rules are joined, by `&`, `|`, `~` and from head to head.

One object has four uses: the mask (`allowed`), a conservative block map that lets a kernel skip work (`block`, made from
intervals, never from an n×n mask), the exact number of score pairs (`pairs`) and the picture (`picture`). A pattern
speaks of positions, segments and roles. That padding sees nothing, is seen by nothing, and that segments are isolated,
is not a pattern's business: `attend` always sees to both.
"""

from __future__ import annotations

import json
import math
import operator
import warnings
from functools import lru_cache, reduce
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Literal, overload

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ..core.layout import Layout, View
from ..core.spec import Spec
from . import counts as quadtree
from . import pictures as picture
from .intervals import BlockMask, Interval, both, either


class Pattern(Spec, role="pattern"):
    """A rule about pairs of tokens. A new one needs `allowed`; with `block` it also becomes fast."""

    text: ClassVar[
        str
    ]  # the canonical JSON, made once: what a custom operator is given, and what equal patterns share.

    def model_post_init(self, context: Any) -> None:
        # Straight into the instance's dictionary, where a graph compiler finds it without pydantic's attribute hooks.
        self.__dict__["text"] = json.dumps(self.to_dict(), sort_keys=True)
        self.__dict__["unsized"] = self._unsized()

    unsized: ClassVar[bool]  # whether it depends on how many tokens rows have, and `over` has yet to say so

    def _unsized(self) -> bool:
        return False

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        """Boolean, broadcastable to (B, T, S); True where the query may see the key.

        With `head` of shape (H, 1, 1) the views carry a head axis and the answer broadcasts to (B, H, T, S). Without one
        it is the rule of the first head.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what it allows")

    def block(self, q: Interval, k: Interval) -> BlockMask:
        """Three-valued logic on blocks: (maybe, surely), in every head. Unsure is always right, only slower."""
        return q.low == q.low, q.low != q.low

    # -- what is known about the rule -----------------------------------------------------------------------------

    @property
    def positional(self) -> bool:
        """Whether the rule depends on where tokens are, so that unequal lengths need layouts."""
        return True

    @property
    def turns(self) -> int:
        """After how many heads the rule comes round again; 1 where it is the same for all."""
        return 1

    @property
    def per_head(self) -> bool:
        """Whether the rule differs from head to head."""
        return self.turns > 1

    @property
    def reach(self) -> int | None:
        """How many tokens back from a query, itself included, the furthest key can be; None where there is no bound."""
        return None

    @property
    def recurrence(self) -> tuple[int, int] | None:
        """(P, f) where pairs at or after position f obey the same rule when both move by P; None where unknown."""
        return None

    def over(self, width: int | Layout, heads: int = 1) -> Pattern:
        """The rule for rows of so many tokens: another one only where it depends on how many there are."""
        return self

    def regroup(self) -> tuple[tuple[int, Pattern], ...] | None:
        """Parts (d, rule), disjoint, that together are this rule: `rule` speaks of positions with one residue mod d,
        numbered by ⌊position / d⌋. So gaps are closed, and what was every d-th token is a block. None where there are no
        gaps."""
        return None

    def thinned(self, d: int) -> Pattern | None:
        """The same rule among positions with one residue mod d, numbered by ⌊position / d⌋; None where it isn't known."""
        return self if d == 1 else None

    # -- joining --------------------------------------------------------------------------------------------------

    def __and__(self, other: Pattern) -> Pattern:
        if isinstance(self, Full) or isinstance(other, Full):
            return other if isinstance(self, Full) else self
        return And(parts=(*_parts(self, And), *_parts(other, And)))

    def __or__(self, other: Pattern) -> Pattern:
        return Or(parts=(*_parts(self, Or), *_parts(other, Or)))

    def __invert__(self) -> Pattern:
        return self.part if isinstance(self, Not) else Not(part=self)

    # -- mask, count, picture -------------------------------------------------------------------------------------

    def mask(self, n: int | Layout, m: int | None = None) -> Tensor:
        """The (n, m) boolean mask over contiguous positions, or a layout's first row; to look at and to test with."""
        layout = n if isinstance(n, Layout) else Layout.full(n)
        keys = layout if m is None else Layout.full(m)
        allowed = self.over(n).allowed(layout.queries(), keys.keys())
        shape = torch.broadcast_shapes(allowed.shape, (1, layout.shape[1], keys.shape[1]))
        return allowed.expand(shape)[0]

    def pairs(self, n: int) -> int:
        """How many (query, key) pairs the pattern allows over n contiguous positions: exact, without an n×n mask.

        Where it differs from head to head this is the mean of heads, rounded down.
        """
        return quadtree.pairs(self.over(n), n)

    def blind(self, n: int) -> list[int]:
        """The positions, of n contiguous ones, whose queries see nothing in some head: attention gives 0 there.

        Found like `pairs`, without an n×n mask; O(n) where every token sees itself or the first.
        """
        return quadtree.blind(self.over(n), n)

    def warn_of_blind(self, n: int = 256) -> None:
        """A warning that names the positions, of the first n, whose queries see nothing whatever the tokens' roles.

        It takes a millisecond once for each pattern: a matter for building a model, not for running it.
        """
        if at := _blind_in_any_role(self, n):
            warnings.warn(
                f"{self} lets queries see nothing at positions {spans(at)} of {n}, where attention gives 0; add what they "
                "may see, such as | window(1) for themselves",
                stacklevel=2,
            )

    def looks_ahead(self, n: int = 256) -> bool:
        """Whether some query among the first n positions sees a key that comes after it, of tokens without roles."""
        with _disable_current_modes(), torch.device("cpu"):
            at = torch.arange(n)
            seen = quadtree.holds(self.over(n), at[None, :, None], at[None, None])
            return bool((seen & (at > at[:, None])).any())

    @overload
    def picture(self, n: int | Layout = 32, cell: int = 8, format: Literal["svg"] = "svg") -> str: ...
    @overload
    def picture(self, n: int | Layout = 32, cell: int = 8, *, format: Literal["png"]) -> bytes: ...
    def picture(self, n: int | Layout = 32, cell: int = 8, format: Literal["svg", "png"] = "svg") -> str | bytes:
        """The mask as SVG text or as the bytes of a PNG, cells of `cell` pixels: queries down, keys across."""
        if format not in ("svg", "png"):
            raise ValueError(f"a picture is 'svg' or 'png', not {format!r}")
        mask = self.mask(n)
        return picture.svg(mask, str(self), cell) if format == "svg" else picture.png(mask, cell)

    def save_picture(self, path: str | Path, n: int | Layout = 32, cell: int = 8) -> None:
        """Write the picture, as SVG or PNG by the name's ending. Raises ValueError for another one."""
        ending = Path(path).suffix.lower()
        if ending not in (".svg", ".png"):
            raise ValueError(f"a picture's name ends in .svg or .png, unlike {str(path)!r}")
        data = self.picture(n, cell).encode() if ending == ".svg" else self.picture(n, cell, format="png")
        Path(path).write_bytes(data)


@lru_cache(maxsize=256)
def _blind_in_any_role(pattern: Pattern, n: int) -> list[int]:
    with _disable_current_modes(), torch.device("cpu"):  # with numbers, even where a model is built without contents
        over = pattern.over(n)
        special = set(quadtree.blind(over, n, roles=-1))  # every role at once
        return [at for at in quadtree.blind(over, n) if at in special]


def spans(numbers: list[int]) -> str:
    """0–3, 7, 12–…"""
    runs = [[at for _, at in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    said = [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return ", ".join(said[:8]) + (" …" if len(said) > 8 else "")


# -- joined rules -------------------------------------------------------------------------------------------------------


class Full(Pattern, kind="full"):
    """Every token sees every token (Vaswani et al. 2017, §3.2.3)."""

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return torch.ones((), dtype=torch.bool, device=q.position.device)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        return q.low == q.low, q.low == q.low

    @property
    def positional(self) -> bool:
        return False

    @property
    def recurrence(self) -> tuple[int, int]:
        return 1, 0

    def thinned(self, d: int) -> Pattern:
        return self


class _Several(Pattern):
    """Parts that are joined pair by pair, and block by block."""

    parts: tuple[Pattern, ...] = Field(min_length=1)

    def _unsized(self) -> bool:
        return any(part.unsized for part in self.parts)

    @property
    def positional(self) -> bool:
        return any(part.positional for part in self.parts)

    @property
    def turns(self) -> int:
        return math.lcm(*(part.turns for part in self.parts))

    @property
    def per_head(self) -> bool:
        return any(part.per_head for part in self.parts)

    @property
    def reach(self) -> int | None:
        each = [part.reach for part in self.parts]
        return None if None in each else max(n for n in each if n is not None)

    @property
    def recurrence(self) -> tuple[int, int] | None:
        each = [part.recurrence for part in self.parts]
        known = [pair for pair in each if pair is not None]
        if len(known) < len(each):
            return None
        return math.lcm(*(period for period, _ in known)), max(start for _, start in known)

    def over(self, width: int | Layout, heads: int = 1) -> Pattern:
        parts = tuple(part.over(width, heads) for part in self.parts)
        same = all(a is b for a, b in zip(parts, self.parts, strict=True))
        return self if same else self.replace(parts=parts)


class _Joined(_Several):
    """Parts joined by one operation of logic, in which saying something twice says it once."""

    @field_validator("parts")
    @classmethod
    def _once(cls, parts: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
        return tuple(dict.fromkeys(parts))


class And(_Joined, kind="and"):
    """What every part allows."""

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return reduce(operator.and_, [part.allowed(q, k, head) for part in self.parts])

    def block(self, q: Interval, k: Interval) -> BlockMask:
        return reduce(both, [part.block(q, k) for part in self.parts])

    @property
    def reach(self) -> int | None:
        return min((part.reach for part in self.parts if part.reach is not None), default=None)

    def regroup(self) -> tuple[tuple[int, Pattern], ...] | None:
        each = [part.regroup() for part in self.parts]
        found = [(i, parts) for i, parts in enumerate(each) if parts is not None]
        if len(found) != 1:
            return None
        (at, parts), out = found[0], []
        for d, rule in parts:
            others = [part.thinned(d) for i, part in enumerate(self.parts) if i != at]
            known = [other for other in others if other is not None]
            if len(known) < len(others):
                return None
            out.append((d, reduce(operator.and_, known, rule)))
        return tuple(out)

    def thinned(self, d: int) -> Pattern | None:
        known = [part for part in (part.thinned(d) for part in self.parts) if part is not None]
        return reduce(operator.and_, known) if len(known) == len(self.parts) else None


class Or(_Joined, kind="or"):
    """What some part allows."""

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return reduce(operator.or_, [part.allowed(q, k, head) for part in self.parts])

    def block(self, q: Interval, k: Interval) -> BlockMask:
        return reduce(either, [part.block(q, k) for part in self.parts])


class ByHead(_Several, kind="by-head"):
    """Head h obeys part h mod n of the n parts: heads that look at different things (Child et al. 2019, §4.2; Beltagy et
    al. 2020, §3.1, for dilations)."""

    @property
    def turns(self) -> int:
        return math.lcm(len(self.parts), super().turns)

    @property
    def per_head(self) -> bool:
        return len(self.parts) > 1 or super().per_head

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        if head is None:
            return self.parts[0].allowed(q, k)
        mine = [head % len(self.parts) == i for i in range(len(self.parts))]
        each = zip(mine, self.parts, strict=True)
        return reduce(operator.or_, [is_mine & part.allowed(q, k, head) for is_mine, part in each])

    def block(self, q: Interval, k: Interval) -> BlockMask:
        each = [part.block(q, k) for part in self.parts]
        return reduce(either, each)[0], reduce(both, each)[1]


class Not(Pattern, kind="not"):
    """What the part does not allow (within valid tokens of one segment)."""

    part: Pattern

    @model_validator(mode="before")
    @classmethod
    def _from_part(cls, data: Any) -> Any:
        return {"part": data} if isinstance(data, Pattern) else data

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return ~self.part.allowed(q, k, head)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        maybe, surely = self.part.block(q, k)
        return _not(surely), _not(maybe)

    def _unsized(self) -> bool:
        return self.part.unsized

    @property
    def positional(self) -> bool:
        return self.part.positional

    @property
    def turns(self) -> int:
        return self.part.turns

    @property
    def per_head(self) -> bool:
        return self.part.per_head

    @property
    def recurrence(self) -> tuple[int, int] | None:
        return self.part.recurrence

    def over(self, width: int | Layout, heads: int = 1) -> Pattern:
        part = self.part.over(width, heads)
        return self if part is self.part else Not(part=part)


def _parts(pattern: Pattern, cls: type[And] | type[Or]) -> tuple[Pattern, ...]:
    return pattern.parts if isinstance(pattern, cls) else (pattern,)


def _not(value: Any) -> Any:
    return ~value if isinstance(value, Tensor) else not value


def full() -> Pattern:
    return Full()


def by_head(*parts: Pattern) -> Pattern:
    return ByHead(parts=parts)
