"""Attention patterns over the rows and columns of an image: neighborhood and axial."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, field_validator
from torch import Tensor

from ...core.layout import Grid, Layout, View
from .algebra import Pattern
from .intervals import BlockMask, Interval, between, both, either

Span = tuple[Any, Any]  # the least and the most


class _Places(NamedTuple):
    """Bounds of the rows and columns of tokens, and whether some, or all, have no place in the image."""

    rows: Span
    columns: Span
    some_free: Any
    all_free: Any


class OnGrid(Pattern):
    """A rule about places in an image. Tokens without a place, such as the class token, see all and are seen by all.

    Places come from the layout (axes: the token's number, row and column; −1 for none). With a `grid` they are computed from
    the token's number, row by row, for pixels that are generated one by one and for kernels that skip blocks.
    `mask`, `pairs` and `picture` of n tokens assume the largest square, after the remaining tokens.
    """

    grid: Grid | None = None

    @field_validator("grid")
    @classmethod
    def _has_places(cls, grid: Grid | None) -> Grid | None:
        if grid is not None and (min(grid.rows, grid.columns) < 1 or min(grid.before, grid.after) < 0):
            raise ValueError(f"a grid must have at least one row and one column, not {tuple(grid)}")
        return grid

    def near(self, rows: Tensor, columns: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Return which pairs of query and key places are allowed."""
        raise NotImplementedError

    def near_blocks(self, q: _Places, k: _Places) -> BlockMask:
        """Return which blocks of such pairs are allowed: all, some or none of a block."""
        raise NotImplementedError

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        (rows, columns), (row, column) = self._places(q), self._places(k)
        return (rows < 0) | (row < 0) | self.near(rows, columns, row, column)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        if self.grid is None:
            return super().block(q, k)
        a, b = self._rectangle(self.grid, q), self._rectangle(self.grid, k)
        free = a.some_free | b.some_free, a.all_free | b.all_free
        return either(free, self.near_blocks(a, b))

    def over(self, width: int | Layout, heads: int = 1) -> Pattern:
        if self.grid is not None or (isinstance(width, Layout) and width.positions.shape[-1] == 3):
            return self
        n = width.shape[1] if isinstance(width, Layout) else width
        side = max(1, math.isqrt(n))
        return self.replace(grid=Grid(side, side, before=max(n - side * side, 0)))

    def _places(self, view: View) -> tuple[Tensor, Tensor]:
        """Row and column of each token, −1 for none."""
        if self.grid is None:
            if view.axes.shape[-1] != 3:
                raise ValueError(f"{self} needs the layout of an image, or grid=(rows, columns, before, after)")
            return view.axes[..., 1], view.axes[..., 2]
        patch = view.position - self.grid.before
        placed = (patch >= 0) & (patch < self.grid.patches)
        return torch.where(placed, patch // self.grid.columns, -1), patch % self.grid.columns

    def _rectangle(self, grid: Grid, interval: Interval) -> _Places:
        low, high = interval.low - grid.before, interval.high - grid.before
        some, every = (low < 0) | (high >= grid.patches), (high < 0) | (low >= grid.patches)
        low, high = (_clamp(x, grid.patches - 1) for x in (low, high))
        rows = low // grid.columns, high // grid.columns
        one_row = rows[0] == rows[1]
        columns = (low % grid.columns) * one_row, grid.columns - 1 + (high % grid.columns + 1 - grid.columns) * one_row
        return _Places(rows, columns, some, every)


class Neighborhood(OnGrid, kind="neighborhood"):
    """A token sees the square of `size` × `size` places around its own, cut off at the image's edges: |rows apart| and
    |columns apart| ≤ (size − 1)/2 (Ramachandran et al. 2019; Hassani et al. 2023 move the squares of the edges inward)."""

    size: int = Field(gt=0)

    @field_validator("size")
    @classmethod
    def _has_a_center(cls, size: int) -> int:
        if size % 2 == 0:
            raise ValueError(f"the size of a neighborhood must be odd, so it has a center, not {size}")
        return size

    def near(self, rows: Tensor, columns: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return ((rows - row).abs() <= self.size // 2) & ((columns - column).abs() <= self.size // 2)

    def near_blocks(self, q: _Places, k: _Places) -> BlockMask:
        each = (between(_apart(*spans), -(self.size // 2), self.size // 2) for spans in zip(q[:2], k[:2], strict=True))
        return both(*each)


class GridWindows(OnGrid, kind="grid-windows"):
    """A token sees the tokens of its own square of `size` × `size` places; squares begin at the first row and column, and
    are cut off at the last (Liu et al. 2021, Swin; Bai et al. 2025, Qwen2.5-VL)."""

    size: int = Field(gt=0)

    def near(self, rows: Tensor, columns: Tensor, row: Tensor, column: Tensor) -> Tensor:
        size = self.size
        return (rows // size == row // size) & (columns // size == column // size)

    def near_blocks(self, q: _Places, k: _Places) -> BlockMask:
        each = (
            between(_apart(*((low // self.size, high // self.size) for low, high in spans)), 0, 0)
            for spans in zip(q[:2], k[:2], strict=True)
        )
        return both(*each)


class Axial(OnGrid, kind="axial"):
    """A token sees its own row, its own column, or both (Ho et al. 2019)."""

    along: Literal["both", "row", "column"] = "both"

    def near(self, rows: Tensor, columns: Tensor, row: Tensor, column: Tensor) -> Tensor:
        if self.along == "both":
            return (rows == row) | (columns == column)
        return rows == row if self.along == "row" else columns == column

    def near_blocks(self, q: _Places, k: _Places) -> BlockMask:
        row, column = (between(_apart(*spans), 0, 0) for spans in zip(q[:2], k[:2], strict=True))
        return row if self.along == "row" else column if self.along == "column" else either(row, column)


def _apart(a: Span, b: Span) -> Span:
    return a[0] - b[1], a[1] - b[0]


def _clamp(x: Any, most: int) -> Any:
    return x.clamp(0, most) if isinstance(x, Tensor) else min(max(x, 0), most)


def neighborhood(size: int, grid: Grid | tuple[int, ...] | None = None) -> Pattern:
    return Neighborhood(size=size, grid=None if grid is None else Grid(*grid))


def grid_windows(size: int, grid: Grid | tuple[int, ...] | None = None) -> Pattern:
    return GridWindows(size=size, grid=None if grid is None else Grid(*grid))


def axial(along: Literal["both", "row", "column"] = "both", grid: Grid | tuple[int, ...] | None = None) -> Pattern:
    return Axial(along=along, grid=None if grid is None else Grid(*grid))
