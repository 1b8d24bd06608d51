"""`Layout`: positions, segments and roles of the tokens in a batch, and what the host knows about them.

A batch carries its `Layout` from the data to the kernel unchanged. Patterns and biases are functions of what stands
here, never of tensor indices; so padding on either side, packing, cached decoding and sharded sequences are the same
rule on other numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntFlag
from typing import Literal, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.utils import _pytree

from . import several

Maybe = TypeVar("Maybe", Tensor, Tensor | None)
Padding = Literal["none", "right", "left", "mixed"]


class Role(IntFlag):
    """What a token is besides its place; bits, so a token can be several.

    A token of a picture, a sound or another medium has the role MEDIUM, and the medium's number from `MEDIUM_BIT` on.
    """

    PLAIN = 0
    GLOBAL = 1
    CLASS = 2
    PREFIX = 4
    MEDIUM = 8


MEDIUM_BIT = 8  # the first bit of the number of a token's medium, counted from 1 within a batch


class Grid(NamedTuple):
    """How the tokens of an image stand: `before` of no place, then rows · columns patches row by row, then `after`."""

    rows: int
    columns: int
    before: int = 0
    after: int = 0

    @property
    def patches(self) -> int:
        return self.rows * self.columns

    @property
    def tokens(self) -> int:
        return self.before + self.patches + self.after


class View(NamedTuple):
    """One side of a comparison, in a shape in which `q.position - k.position` broadcasts to (B, T, S)."""

    position: Tensor
    segment: Tensor
    role: Tensor
    axes: Tensor  # (..., A): every position axis; `position` is the first


@dataclass(frozen=True, eq=False)
class Layout:
    """Positions, segments and roles of (B, T) tokens. B may be 1 if every row has the same.

    Tensors, on the model's device:
        positions: (B, T, A) int64, one number per axis; −1 marks padding. Text has one axis, its index. Tokens of an image
                   have their index, row and column, and joint sequences index, time, row and column (`positions.axes`).
        segments:  (B, T) int64 or None (all one): tokens of unequal segments never see one another.
        roles:     (B, T) int64 of `Role` bits, or None (all plain).

    Facts on the host, so a fused kernel is chosen without asking the device:
        padding:     where padding stands in the rows.
        one_segment: no row holds two segments.
        sequential:  between real tokens of one segment, the distance of positions is the distance of indices.
        start:       the position of the first token when it is the same known number in every row, else None.
        lengths:     real tokens in each row, if the maker knew them.
        n_global:    the most tokens of a row that have the role GLOBAL, if the maker knew it.
        grid:        the grid of an image's patches; its axes are the token's number in the grid, row and column (−1, −1
                     where a token has no place).
    """

    positions: Int[Tensor, "B T A"]
    segments: Int[Tensor, "B T"] | None = None
    roles: Int[Tensor, "B T"] | None = None
    padding: Padding = "mixed"
    one_segment: bool = True
    sequential: bool = False
    start: int | None = None
    lengths: tuple[int, ...] | None = None
    grid: Grid | None = None
    n_global: int | None = None

    def __post_init__(self) -> None:
        try:
            axes = self.positions.ndim
        except AttributeError as error:
            raise several.in_words(error, Layout, self.positions) from None
        if axes == 2:
            object.__setattr__(self, "positions", self.positions.unsqueeze(-1))
        elif axes != 3:
            shape = tuple(self.positions.shape)
            raise ValueError(f"positions are (batch, length) or (batch, length, axes), not {shape}")

    # -- makers -------------------------------------------------------------------------------------------------

    @classmethod
    def full(cls, length: int, start: int = 0, device: torch.device | str | None = None) -> Layout:
        """Unpadded rows at positions start … start + length − 1."""
        try:
            positions = torch.arange(start, start + length, device=device)[None, :, None]
        except (TypeError, RuntimeError, OverflowError) as error:
            raise several.in_words(error, Layout.full, length, start, device) from None
        return cls(positions, padding="none", sequential=True, start=start)

    @classmethod
    @several.worded
    def from_lengths(
        cls,
        lengths: Sequence[int],
        width: int | None = None,
        side: Literal["right", "left"] = "right",
        device: torch.device | str | None = None,
    ) -> Layout:
        """One sequence a row, padded on one side to `width` (the longest by default)."""
        width = max(lengths, default=0) if width is None else width
        if any(n > width or n < 0 for n in lengths):
            raise ValueError(f"lengths {list(lengths)} don't fit a width of {width}")
        if all(n == width for n in lengths):
            return replace(cls.full(width, device=device), lengths=tuple(lengths))
        count = torch.tensor(list(lengths))[:, None]
        index = torch.arange(width)[None, :]
        if side == "left":
            index = index - (width - count)
        positions = torch.where((index >= 0) & (index < count), index, -1)[..., None]
        start = 0 if side == "right" else None
        return cls(positions.to(device), padding=side, sequential=True, start=start, lengths=tuple(lengths))

    @classmethod
    @several.worded
    def from_mask(cls, mask: Bool[Tensor, "B T"]) -> Layout:
        """From an attention mask, True (or 1) at real tokens. Reads the mask once on the host.

        Under `torch.export` there is nothing to read: the layout serves any mask, and none of its facts are known.
        """
        if mask.ndim != 2:
            raise ValueError(f"an attention mask is (batch, length), not {tuple(mask.shape)}")
        if torch.compiler.is_exporting():
            real = mask.to(torch.bool)
            return cls(torch.where(real, real.long().cumsum(1) - 1, -1))
        if mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
            raise ValueError("an attention mask holds True/False or 1/0 (1 = real token), not additive scores")
        host = mask.detach().to("cpu", torch.bool)
        lengths = host.sum(1).tolist()
        width = host.shape[1]
        if all(n == width for n in lengths):
            return replace(cls.full(width, device=mask.device), lengths=tuple(lengths))
        for side in ("right", "left"):
            made = cls.from_lengths(lengths, width, side)
            if torch.equal(made.valid, host):
                return made.to(mask.device)
        positions = torch.where(host, host.long().cumsum(1) - 1, -1)[..., None]
        return cls(positions.to(mask.device), padding="mixed", sequential=False, lengths=tuple(lengths))

    @classmethod
    @several.worded
    def packed(
        cls, rows: Sequence[Sequence[int]], width: int | None = None, device: torch.device | str | None = None
    ) -> Layout:
        """Several documents a row: `rows[b]` lists their lengths. Positions start again in each; none sees another."""
        width = max((sum(row) for row in rows), default=0) if width is None else width
        positions = torch.full((len(rows), width), -1)
        segments = torch.full((len(rows), width), -1)
        for b, row in enumerate(rows):
            if sum(row) > width:
                raise ValueError(f"row {b} holds {sum(row)} tokens, more than its width of {width}")
            at = 0
            for s, n in enumerate(row):
                positions[b, at : at + n] = torch.arange(n)
                segments[b, at : at + n] = s
                at += n
        lengths = tuple(sum(row) for row in rows)
        return cls(
            positions[..., None].to(device),
            segments.to(device),
            padding="none" if all(n == width for n in lengths) else "right",
            one_segment=all(len(row) <= 1 for row in rows),
            sequential=True,
            lengths=lengths,
        )

    # -- what it says -------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        return self.positions.shape[0], self.positions.shape[1]

    @property
    def valid(self) -> Bool[Tensor, "B T"]:
        """True at real tokens."""
        return self.positions[..., 0] >= 0

    @property
    def media(self) -> Int[Tensor, "B T"] | None:
        """The number of each token's medium, 0 for text; None if no token has roles."""
        return None if self.roles is None else self.roles >> MEDIUM_BIT

    @property
    def device(self) -> torch.device:
        return self.positions.device

    def longest(self) -> int:
        """The tokens of the longest sequence, by its last position, which a model's context has to hold. Reads the device if
        the host does not know it."""
        if self.start is not None and self.one_segment and self.lengths is None:
            return self.start + self.shape[1]
        if self.lengths is not None and self.one_segment:
            return max(self.lengths, default=0)
        return int(self.positions[..., 0].max()) + 1

    def _view(self, axis: int) -> View:
        zero = self.positions.new_zeros(()) if self.segments is None or self.roles is None else None
        try:
            segment = zero if self.segments is None else self.segments.unsqueeze(axis)
            role = zero if self.roles is None else self.roles.unsqueeze(axis)
        except (AttributeError, IndexError) as error:
            raise several.in_words(error, Layout, self.positions, self.segments, self.roles) from None
        axes = self.positions.unsqueeze(axis)
        return View(axes[..., 0], segment, role, axes)  # type: ignore[arg-type]

    def queries(self) -> View:
        """This side as queries: (B, T, 1)."""
        return self._view(2)

    def keys(self) -> View:
        """This side as keys: (B, 1, S)."""
        return self._view(1)

    # -- other layouts from it ----------------------------------------------------------------------------------

    @several.worded
    def to(self, device: torch.device | str | None) -> Layout:
        def move(t: Maybe) -> Maybe:
            return t if t is None else t.to(device, non_blocking=True)

        return replace(self, positions=move(self.positions), segments=move(self.segments), roles=move(self.roles))

    @several.worded
    def select(self, rows: Int[Tensor, " N"]) -> Layout:
        """The layout of the given rows, in their order (for beams and for batching)."""
        if all(t is None or len(t) == 1 for t in (self.positions, self.segments, self.roles)):
            return self

        def pick(t: Maybe) -> Maybe:  # positions of one row may stand beside roles of many
            return t if t is None or len(t) == 1 else t.index_select(0, rows)

        return replace(
            self,
            positions=pick(self.positions),
            segments=pick(self.segments),
            roles=pick(self.roles),
            lengths=None,
        )

    @several.worded
    def slice(self, start: int, stop: int) -> Layout:
        """Tokens start … stop − 1 of each row."""

        def cut(t: Maybe) -> Maybe:
            return t if t is None else t[:, start:stop]

        return replace(
            self,
            positions=cut(self.positions),
            segments=cut(self.segments),
            roles=cut(self.roles),
            start=None if self.start is None else self.start + start,
            lengths=None,
        )

    @several.worded
    def with_roles(self, roles: Int[Tensor, "B T"]) -> Layout:
        return replace(self, roles=roles, n_global=None)

    def with_media(self, numbers: Int[Tensor, "B T"]) -> Layout:
        """With tokens of media, besides what they are: tokens of one medium have its number, from 1; 0 is none."""
        media = (numbers << MEDIUM_BIT) | ((numbers > 0) * int(Role.MEDIUM))
        return replace(
            self,
            positions=self.positions.expand(len(numbers), -1, -1),
            roles=media if self.roles is None else self.roles | media,
        )

    @several.worded
    def with_global(self, mask: Bool[Tensor, "B T"]) -> Layout:
        """With the tokens that a mask marks (True or 1) global besides what they are: Longformer's see all and are seen by
        all (Beltagy et al. 2020, §3.1). Reads the mask once on the host."""
        if mask.ndim != 2 or mask.shape[1] != self.shape[1]:
            raise ValueError(f"a mask of global tokens is (batch, {self.shape[1]}) here, not {tuple(mask.shape)}")
        chosen = (mask.bool() & self.valid).long() * int(Role.GLOBAL)
        roles = chosen if self.roles is None else self.roles | chosen
        return replace(self, roles=roles, n_global=int(((roles & Role.GLOBAL) != 0).sum(1).max()))


_FACTS = ("padding", "one_segment", "sequential", "start", "lengths", "grid", "n_global")
_pytree.register_pytree_node(
    Layout,
    lambda x: ([x.positions, x.segments, x.roles], tuple(getattr(x, f) for f in _FACTS)),
    lambda leaves, facts: Layout(*leaves, **dict(zip(_FACTS, facts, strict=True))),
    serialized_type_name="qkv.core.layout.Layout",
)
