"""How a batch of strips reaches its rows of a tensor: by a view that moves on evenly, or by gathering whole blocks."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Rows(Protocol):
    """For each of n strips, some rows of a tensor (tokens, width)."""

    def of(self, x: Tensor) -> Tensor:
        """(tokens, width) → (n, rows, width)."""
        ...

    def put(self, into: Tensor, rows: Tensor) -> None:
        """Write (n, rows, width), of strips that have no row in common."""
        ...

    def add(self, into: Tensor, rows: Tensor) -> None:
        """Add (n, rows, width); a row that several strips have gets the sum."""
        ...

    def tokens(self) -> Tensor:
        """(n, rows) int64: which token each row is."""
        ...


class Even(NamedTuple):
    """Rows start … start + length − 1 for the first strip, and `step` further on for each next one: a view, never a copy."""

    start: int
    step: int
    length: int
    n: int

    def of(self, x: Tensor) -> Tensor:
        if self.step == 0:
            return x[self.start : self.start + self.length].expand(self.n, -1, -1)
        stop = self.start + (self.n - 1) * self.step + self.length
        return x[self.start : stop].unfold(0, self.length, self.step).mT

    def put(self, into: Tensor, rows: Tensor) -> None:
        self.of(into).copy_(rows)

    def add(self, into: Tensor, rows: Tensor) -> None:
        if self.step == 0:
            into[self.start : self.start + self.length] += rows.sum(0)
            return
        for at in range(0, self.length, self.step):  # strips overlap, so as much at a time as two of them don't share
            length = min(self.step, self.length - at)
            Even(self.start + at, self.step, length, self.n).of(into).add_(rows[:, at : at + length])

    def tokens(self) -> Tensor:
        return self.start + torch.arange(self.n)[:, None] * self.step + torch.arange(self.length)


class Gathered(NamedTuple):
    """Whole blocks of `size` rows: `blocks` is (n, blocks of a strip)."""

    blocks: Tensor
    size: int

    def of(self, x: Tensor) -> Tensor:
        return self._blocked(x).index_select(0, self.blocks.flatten()).view(len(self.blocks), -1, x.shape[-1])

    def put(self, into: Tensor, rows: Tensor) -> None:
        self._blocked(into).index_copy_(
            0, self.blocks.flatten(), rows.view(-1, self.size, into.shape[-1]).to(into.dtype)
        )

    def add(self, into: Tensor, rows: Tensor) -> None:
        self._blocked(into).index_add_(0, self.blocks.flatten(), rows.view(-1, self.size, into.shape[-1]))

    def tokens(self) -> Tensor:
        return (self.blocks[..., None] * self.size + torch.arange(self.size)).flatten(1)

    def _blocked(self, x: Tensor) -> Tensor:
        return x[: len(x) // self.size * self.size].unflatten(0, (-1, self.size))
