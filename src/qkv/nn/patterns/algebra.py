"""`Pattern`, the rule which keys each query may attend to, and combinations of patterns by `&`, `|`, `~` and by head.

A pattern gives a mask (`allowed`), a conservative mask of blocks that lets kernels skip work (`block`, computed from
intervals, never from an n×n mask), the exact number of pairs (`pairs`) and a picture (`picture`). Rules are about positions,
segments and roles. Patterns need not hide padding or isolate packed documents: `attend` always does both.
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

from ...core.atomic import write_file
from ...core.layout import Layout, View
from ...core.several import worded
from ...core.spec import Spec, brief
from . import counts, pictures
from .intervals import BlockMask, Interval, both, either


class Pattern(Spec, role="pattern"):
    """A rule about pairs of tokens. Subclasses define `allowed`, and `block` to let kernels skip blocks."""

    text: ClassVar[str]  # canonical JSON, for custom operators and as a key of caches

    def model_post_init(self, context: object) -> None:
        # Written to the instance's dictionary, where torch.compile finds it without pydantic's attribute hooks.
        self.__dict__["text"] = json.dumps(self.to_dict(), sort_keys=True)
        self.__dict__["unsized"] = self._unsized()

    unsized: ClassVar[bool]  # whether it depends on the length of rows, which `over` sets

    def _unsized(self) -> bool:
        return False

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        """Boolean, broadcastable to (B, T, S); True if the query may attend to the key.

        With `head` of shape (H, 1, 1) the views have a head axis, and the result broadcasts to (B, H, T, S). Without it,
        the rule of the first head.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define `allowed`")

    def block(self, q: Interval, k: Interval) -> BlockMask:
        """Whether some pair, and every pair, of two blocks is allowed in all heads; (True, False) is always right."""
        return q.low == q.low, q.low != q.low

    # -- properties of the rule ----------------------------------------------------------------------------------

    @property
    def positional(self) -> bool:
        """Whether the rule depends on positions, so queries and keys of unequal length need layouts."""
        return True

    @property
    def head_period(self) -> int:
        """The number of heads after which rules repeat; 1 if all heads have the same."""
        return 1

    @property
    def per_head(self) -> bool:
        """Whether the rule differs from head to head."""
        return self.head_period > 1

    @property
    def reach(self) -> int | None:
        """How many tokens back a query sees, including itself; None if unlimited."""
        return None

    @property
    def period(self) -> tuple[int, int] | None:
        """(P, f) if the rule for positions from f on is unchanged when both move by P; None if unknown."""
        return None

    def over(self, width: int | Layout, heads: int = 1) -> Pattern:
        """The rule for rows of this length; self for patterns that do not depend on it."""
        return self

    def regroup(self) -> tuple[tuple[int, Pattern], ...] | None:
        """Disjoint parts (d, rule) of this rule; None if it has no gaps. `rule` is about positions of one residue mod d,
        renumbered as ⌊position / d⌋, so every d-th token becomes a neighbor."""
        return None

    def subsampled(self, d: int) -> Pattern | None:
        """The rule for positions of one residue mod d, renumbered as ⌊position / d⌋; None if unknown."""
        return self if d == 1 else None

    # -- combining ------------------------------------------------------------------------------------------------

    def __and__(self, other: Pattern) -> Pattern:
        if isinstance(self, Full) or isinstance(other, Full):
            return other if isinstance(self, Full) else self
        return And(parts=(*parts_of(self, And), *parts_of(other, And)))

    def __or__(self, other: Pattern) -> Pattern:
        return Or(parts=(*parts_of(self, Or), *parts_of(other, Or)))

    def __invert__(self) -> Pattern:
        return self.part if isinstance(self, Not) else Not(part=self)

    # -- mask, count, picture -------------------------------------------------------------------------------------

    def mask(self, n: int | Layout, m: int | None = None) -> Tensor:
        """The (n, m) boolean mask over contiguous positions, or of a layout's first row, for inspection and tests."""
        layout = n if isinstance(n, Layout) else Layout.full(n)
        keys = layout if m is None else Layout.full(m)
        allowed = self.over(n).allowed(layout.queries(), keys.keys())
        shape = torch.broadcast_shapes(allowed.shape, (1, layout.shape[1], keys.shape[1]))
        return allowed.expand(shape)[0]

    def pairs(self, n: int) -> int:
        """The exact number of allowed (query, key) pairs over n contiguous positions, computed without an n×n mask.

        For patterns that differ by head, the mean over heads, rounded down.
        """
        return counts.pairs(self.over(n), n)

    def fully_masked(self, n: int) -> list[int]:
        """The positions, among n contiguous ones, whose queries see no key in some head: attention returns 0 there.

        Computed like `pairs`, without an n×n mask; O(n) if every token sees itself or the first.
        """
        return counts.fully_masked(self.over(n), n)

    def warn_if_fully_masked(self, n: int = 256) -> None:
        """Warn about positions among the first n whose queries see no key, whatever the roles of tokens.

        Takes a millisecond, once for each pattern; called when a model is built.
        """
        if at := _fully_masked_in_any_role(self, n):
            warnings.warn(
                f"{self} lets queries see nothing at positions {spans(at)} of {n}, where attention returns 0; add keys that "
                "they may see, such as | window(1) for themselves",
                stacklevel=2,
            )

    def looks_ahead(self, n: int = 256) -> bool:
        """Whether, among the first n tokens without roles, some query sees a later key."""
        with _disable_current_modes(), torch.device("cpu"):
            at = torch.arange(n)
            seen = counts.evaluate(self.over(n), at[None, :, None], at[None, None])
            return bool((seen & (at > at[:, None])).any())

    def _repr_svg_(self) -> str:
        """The picture, for notebooks."""
        return self.picture()

    @overload
    def picture(self, n: int | Layout = 32, cell: int = 8, format: Literal["svg"] = "svg") -> str: ...
    @overload
    def picture(self, n: int | Layout = 32, cell: int = 8, *, format: Literal["png"]) -> bytes: ...
    def picture(self, n: int | Layout = 32, cell: int = 8, format: Literal["svg", "png"] = "svg") -> str | bytes:
        """The mask as SVG text or PNG bytes with cells of `cell` pixels: a row for each query, a column for each key."""
        if format not in ("svg", "png"):
            raise ValueError(f"format must be 'svg' or 'png', not {brief(format)}")
        mask = self.mask(n)
        return pictures.svg(mask, str(self), cell) if format == "svg" else pictures.png(mask, cell)

    @worded
    def save_picture(self, path: str | Path, n: int | Layout = 32, cell: int = 8) -> None:
        """Write the picture to a file, as SVG or PNG by its suffix. Raises ValueError for other suffixes."""
        ending = Path(path).suffix.lower()
        if ending not in (".svg", ".png"):
            raise ValueError(f"the file name of a picture must end in .svg or .png, not {brief(path)}")
        data = self.picture(n, cell).encode() if ending == ".svg" else self.picture(n, cell, format="png")
        write_file(Path(path), data)


@lru_cache(maxsize=256)
def _fully_masked_in_any_role(pattern: Pattern, n: int) -> list[int]:
    with _disable_current_modes(), torch.device("cpu"):  # real tensors, even if a model is built on the meta device
        over = pattern.over(n)
        special = set(counts.fully_masked(over, n, roles=-1))  # every role at once
        return [at for at in counts.fully_masked(over, n) if at in special]


def spans(numbers: list[int]) -> str:
    """0–3, 7, 12–…"""
    runs = [[at for _, at in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    texts = [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return ", ".join(texts[:8]) + (" …" if len(texts) > 8 else "")


# -- combinations ------------------------------------------------------------------------------------------------------


class Full(Pattern, kind="full"):
    """Every token sees every token (Vaswani et al. 2017, §3.2.3)."""

    period: ClassVar[tuple[int, int]] = (1, 0)
    positional: ClassVar[bool] = False

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return torch.ones((), dtype=torch.bool, device=q.position.device)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        return q.low == q.low, q.low == q.low

    def subsampled(self, d: int) -> Pattern:
        return self


class _Combined(Pattern):
    """A rule made of other rules, its operands."""

    @property
    def operands(self) -> tuple[Pattern, ...]:
        raise NotImplementedError

    def _unsized(self) -> bool:
        return any(part.unsized for part in self.operands)

    @property
    def positional(self) -> bool:
        return any(part.positional for part in self.operands)

    @property
    def head_period(self) -> int:
        return math.lcm(*(part.head_period for part in self.operands))

    @property
    def per_head(self) -> bool:
        return any(part.per_head for part in self.operands)

    @property
    def period(self) -> tuple[int, int] | None:
        known = [pair for pair in (part.period for part in self.operands) if pair is not None]
        if len(known) < len(self.operands):
            return None
        return math.lcm(*(period for period, _ in known)), max(start for _, start in known)


class _Several(_Combined):
    """A combination of several parts."""

    parts: tuple[Pattern, ...] = Field(min_length=1)

    @property
    def operands(self) -> tuple[Pattern, ...]:
        return self.parts

    @property
    def reach(self) -> int | None:
        each = [part.reach for part in self.parts]
        return None if None in each else max(n for n in each if n is not None)

    def over(self, width: int | Layout, heads: int = 1) -> Pattern:
        parts = tuple(part.over(width, heads) for part in self.parts)
        same = all(a is b for a, b in zip(parts, self.parts, strict=True))
        return self if same else self.replace(parts=parts)


class _Joined(_Several):
    """Parts combined by one logical operation; repeated parts are dropped."""

    @field_validator("parts")
    @classmethod
    def _once(cls, parts: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
        return tuple(dict.fromkeys(parts))


def _joined(parts: tuple[Pattern, ...], sign: str) -> str:
    """The parts with the operator between them, combinations in parentheses."""
    return sign.join(f"({part!r})" if isinstance(part, And | Or) else repr(part) for part in parts)


class And(_Joined, kind="and"):
    """The pairs that all parts allow."""

    def __repr__(self) -> str:
        return _joined(self.parts, " & ")

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return reduce(operator.and_, [part.allowed(q, k, head) for part in self.parts])

    def block(self, q: Interval, k: Interval) -> BlockMask:
        return reduce(both, [part.block(q, k) for part in self.parts])

    @property
    def reach(self) -> int | None:
        return min((part.reach for part in self.parts if part.reach is not None), default=None)

    def regroup(self) -> tuple[tuple[int, Pattern], ...] | None:
        each = [part.regroup() for part in self.parts]
        regrouped = [(i, parts) for i, parts in enumerate(each) if parts is not None]
        if len(regrouped) != 1:
            return None
        (at, parts), out = regrouped[0], []
        for d, rule in parts:
            others = [part.subsampled(d) for i, part in enumerate(self.parts) if i != at]
            known = [other for other in others if other is not None]
            if len(known) < len(others):
                return None
            out.append((d, reduce(operator.and_, known, rule)))
        return tuple(out)

    def subsampled(self, d: int) -> Pattern | None:
        known = [part for part in (part.subsampled(d) for part in self.parts) if part is not None]
        return reduce(operator.and_, known) if len(known) == len(self.parts) else None


class Or(_Joined, kind="or"):
    """The pairs that any part allows."""

    def __repr__(self) -> str:
        return _joined(self.parts, " | ")

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return reduce(operator.or_, [part.allowed(q, k, head) for part in self.parts])

    def block(self, q: Interval, k: Interval) -> BlockMask:
        return reduce(either, [part.block(q, k) for part in self.parts])


class ByHead(_Several, kind="by-head"):
    """Head h has rule h mod n of the n parts (Child et al. 2019, §4.2; Beltagy et al. 2020, §3.1, for dilations)."""

    @property
    def head_period(self) -> int:
        return math.lcm(len(self.parts), super().head_period)

    @property
    def per_head(self) -> bool:
        return len(self.parts) > 1 or super().per_head

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        if head is None:
            return self.parts[0].allowed(q, k)
        n = len(self.parts)
        allowed = [(head % n == i) & part.allowed(q, k, head) for i, part in enumerate(self.parts)]
        return reduce(operator.or_, allowed)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        each = [part.block(q, k) for part in self.parts]
        return reduce(either, each)[0], reduce(both, each)[1]


class Not(_Combined, kind="not"):
    """The pairs that the part does not allow (among real tokens of one segment)."""

    part: Pattern

    def __repr__(self) -> str:
        return "~" + _joined((self.part,), "")

    @property
    def operands(self) -> tuple[Pattern, ...]:
        return (self.part,)

    @model_validator(mode="before")
    @classmethod
    def _from_part(cls, data: Any) -> Any:
        return {"part": data} if isinstance(data, Pattern) else data

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return ~self.part.allowed(q, k, head)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        maybe, surely = self.part.block(q, k)
        return _not(surely), _not(maybe)

    def over(self, width: int | Layout, heads: int = 1) -> Pattern:
        part = self.part.over(width, heads)
        return self if part is self.part else Not(part=part)


def parts_of(pattern: Pattern, cls: type[And] | type[Or] = And) -> tuple[Pattern, ...]:
    """The parts of a conjunction (or disjunction); any other pattern is its only part."""
    return pattern.parts if isinstance(pattern, cls) else (pattern,)


def _not(value: Any) -> Any:
    return ~value if isinstance(value, Tensor) else not value


def full() -> Pattern:
    return Full()


def by_head(*parts: Pattern) -> Pattern:
    return ByHead(parts=parts)
