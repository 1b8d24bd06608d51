"""Sparse attention patterns over positions: dilated, strided, fixed, chunks, and random blocks."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from ...core.layout import View
from .algebra import Full, Pattern, by_head
from .intervals import BlockMask, Interval, between, both, difference, either, multiple

Part = Literal["both", "local", "far"]


class Dilated(Pattern, kind="dilated"):
    """A window with gaps: `size` tokens back, itself included, each `dilation` apart, and as many ahead (Beltagy et al.
    2020, §3.1): q − k a multiple of d, −ahead · d < q − k < size · d.

    `ahead` counts the token itself as well and is `size` by default.
    """

    period: ClassVar[tuple[int, int]] = (1, 0)

    size: int = Field(gt=0)
    dilation: int = Field(gt=0)
    ahead: int | None = Field(default=None, gt=0)

    @property
    def _bounds(self) -> tuple[int, int]:
        ahead = self.size if self.ahead is None else self.ahead
        return (1 - ahead) * self.dilation, (self.size - 1) * self.dilation

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        back, (low, high) = q.position - k.position, self._bounds
        return (back >= low) & (back <= high) & (back % self.dilation == 0)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        back = difference(q, k)
        return both(between(back, *self._bounds), multiple(back, self.dilation))

    @property
    def reach(self) -> int:
        return self._bounds[1] + 1

    def regroup(self) -> tuple[tuple[int, Pattern], ...] | None:
        return ((self.dilation, self.replace(dilation=1)),) if self.dilation > 1 else None


class Strided(Pattern, kind="strided"):
    """The strided pattern of Sparse Transformers (Child et al. 2019, §4.2), of which `causal()` takes the past:

    local: |q − k| ≤ l; far: q − k a multiple of l; both: either of them. l ≈ √n gives O(n √n) pairs.
    """

    period: ClassVar[tuple[int, int]] = (1, 0)

    stride: int = Field(gt=0)
    part: Part = "both"

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        back = q.position - k.position
        return _chosen(self.part, back.abs() <= self.stride, back % self.stride == 0)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        back = difference(q, k)
        local, far = between(back, -self.stride, self.stride), multiple(back, self.stride)
        return local if self.part == "local" else far if self.part == "far" else either(local, far)

    @property
    def reach(self) -> int | None:
        return self.stride + 1 if self.part == "local" else None

    def regroup(self) -> tuple[tuple[int, Pattern], ...] | None:
        if self.part == "local":
            return None
        local = (1, self.replace(part="local"))
        near = Dilated(size=2, dilation=1)  # pairs that are in the window too
        return ((self.stride, Full()),) if self.part == "far" else (local, (self.stride, ~near))


class Fixed(Pattern, kind="fixed"):
    """The fixed pattern of Sparse Transformers (Child et al. 2019, §4.2), of which `causal()` takes the past:

    local: ⌊q / l⌋ = ⌊k / l⌋; far: k mod l ≥ l − c, the last c = `summary` positions of each block of l = `block_size`,
    which summarize it for the others; both: either of them. l ≈ √n gives O(c n √n) pairs.
    """

    block_size: int = Field(gt=0)
    summary: int = Field(default=1, gt=0)
    part: Part = "both"

    @model_validator(mode="after")
    def _summary_fits(self) -> Fixed:
        if self.summary > self.block_size:
            raise ValueError(f"summary={self.summary} positions don't fit into blocks of {self.block_size}; take fewer")
        return self

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        local = q.position // self.block_size == k.position // self.block_size
        return _chosen(self.part, local, k.position % self.block_size >= self.block_size - self.summary)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        local = between(difference(q, k, self.block_size), 0, 0)
        first, last = k.low // self.block_size, k.high // self.block_size
        some = (k.high + self.summary) // self.block_size > first  # k is in a summary if k + c is past its block
        every = (first == last) & ((k.low + self.summary) // self.block_size > first)
        far = some, every | (self.summary == self.block_size)
        return local if self.part == "local" else far if self.part == "far" else either(local, far)

    @property
    def reach(self) -> int | None:
        return self.block_size if self.part == "local" else None

    @property
    def period(self) -> tuple[int, int]:
        return self.block_size, 0


class Chunks(Pattern, kind="chunks"):
    """Positions in chunks of `size`; a token sees its own chunk, `back` ones before it and `ahead` after it:
    −ahead ≤ ⌊q / size⌋ − ⌊k / size⌋ ≤ back.

    Without either it is block-diagonal (Qiu et al. 2020, BlockBERT), and with `causal()` the chunked attention of
    Llama 4 (Meta 2025); `chunks(l, back=1, ahead=1)` has BigBird's window (Zaheer et al. 2020).
    """

    size: int = Field(gt=0)
    back: int = Field(default=0, ge=0)
    ahead: int = Field(default=0, ge=0)

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        back = q.position // self.size - k.position // self.size
        return (back <= self.back) & (back >= -self.ahead)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        return between(difference(q, k, self.size), -self.ahead, self.back)

    @property
    def reach(self) -> int:
        return self.size * (self.back + 1)

    @property
    def period(self) -> tuple[int, int]:
        return self.size, 0


_MOST_ROWS = 128  # of blocks for which `block` draws; larger blocks are (True, False)


class RandomBlocks(Pattern, kind="random-blocks"):
    """Random attention (Zaheer et al. 2020, §2): each block of `size` tokens draws `count` of the blocks before it
    (all, if fewer); two blocks see one another if either drew the other.

    A block does not see itself: combine with `window`, `chunks` or `global_tokens`. The draws of block i depend on i and
    `seed` alone (Floyd's sampling, on hashed numbers), so they are the same in longer rows, after packing and in decoding.
    """

    size: int = Field(gt=0)
    count: int = Field(gt=0)
    seed: int = Field(default=0, ge=0, lt=1 << 31)

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        i, j = q.position // self.size, k.position // self.size
        equal = [drawn == j for drawn in self._drawn(i)] + [drawn == i for drawn in self._drawn(j)]
        return torch.stack(torch.broadcast_tensors(*equal)).any(0)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        if torch.compiler.is_compiling():  # a graph can't use draws on the host
            return super().block(q, k)
        rows, columns = self._span(q), self._span(k)
        if max(int((high - low).max()) for low, high in (rows, columns)) >= _MOST_ROWS:
            return super().block(q, k)
        hits = self._hits(rows, columns) + self._hits(columns, rows)  # i < j or j < i: no pair counts twice
        area = (rows[1] - rows[0] + 1) * (columns[1] - columns[0] + 1)
        return hits > 0, hits == area

    def _span(self, interval: Interval) -> tuple[Tensor, Tensor]:
        low, high = (torch.as_tensor(x, device="cpu") // self.size for x in (interval.low, interval.high))
        return low, high

    def _hits(self, rows: tuple[Tensor, Tensor], columns: tuple[Tensor, Tensor]) -> Tensor:
        """How many of the blocks drawn by the rows are among the columns."""
        most = max(int((rows[1] - rows[0]).max()), 0) + 1
        row = rows[0][..., None] + torch.arange(most, device="cpu")
        low, high = (x[..., None] for x in columns)
        hits = [(drawn >= low) & (drawn <= high) & (row <= rows[1][..., None]) for drawn in self._drawn(row)]
        return torch.stack(hits).sum((0, -1))

    def _drawn(self, block: Tensor) -> list[Tensor]:
        """The blocks that each block draws, −1 for none: uniform, without repetition (Floyd, in Bentley 1987)."""
        drawn: list[Tensor] = []
        for i in range(self.count):
            last = block - self.count + i
            pick = _hashed(block, _mixed(self.seed) + i) % (last + 1).clamp(min=1)
            for other in drawn:
                pick = torch.where(pick == other, -2, pick)
            pick = torch.where(pick == -2, last, pick)
            drawn.append(torch.where(last < 0, -1, pick))
        return drawn


def _chosen(part: Part, local: Tensor, far: Tensor) -> Tensor:
    return local if part == "local" else far if part == "far" else local | far


def _hashed(x: Tensor, salt: int) -> Tensor:
    """A 32-bit hash of each number and a salt."""
    return _mixed(_mixed((x + salt) & 0xFFFFFFFF) ^ (_mixed(salt & 0xFFFFFFFF)))


def _mixed(x: Any) -> Any:
    """A bijection of 32-bit numbers in which each input bit changes about half of the output bits (C. Wellons)."""
    for _ in range(2):
        x = ((x >> 16) ^ x) * 0x45D9F3B & 0xFFFFFFFF
    return (x >> 16) ^ x


# -- short names --------------------------------------------------------------------------------------------------------


def dilated(size: int, dilation: int, ahead: int | None = None) -> Pattern:
    return Dilated(size=size, dilation=dilation, ahead=ahead)


def strided(stride: int, part: Part = "both") -> Pattern:
    return Strided(stride=stride, part=part)


def fixed(block_size: int, summary: int = 1, part: Part = "both") -> Pattern:
    return Fixed(block_size=block_size, summary=summary, part=part)


def chunks(size: int, back: int = 0, ahead: int = 0) -> Pattern:
    return Chunks(size=size, back=back, ahead=ahead)


def blocks(size: int) -> Pattern:
    """Block-diagonal attention."""
    return Chunks(size=size)


def random_blocks(size: int, count: int, seed: int = 0, heads: int = 1) -> Pattern:
    """With several `heads`, each head has its own draws, with seeds seed, seed + 1, …"""
    drawn = [RandomBlocks(size=size, count=count, seed=seed + head) for head in range(heads)]
    return drawn[0] if heads == 1 else by_head(*drawn)
