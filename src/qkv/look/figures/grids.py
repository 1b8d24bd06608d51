"""Matrices as grids of shaded cells, several in a row, as an SVG file: masks, attention weights, tiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from torch import Tensor

from ..standalone_svg import WIDTH, save
from ..svg import join, number, tag, text_width

_FONT, _GAP, _CELL = 12.0, 16.0, 24.0  # _CELL: the largest side of a cell
_SLANT = 55  # rotation of column labels, in degrees


@dataclass(frozen=True, eq=False)
class ValueGrid:
    """values[r][c], not negative: rows (queries) of columns (keys). The largest is opaque, or `top` if it is given.

    rows, columns: labels; without them the grid has none.
    """

    title: str
    values: Tensor | Sequence[Sequence[float]]
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    top: float | None = None

    def numbers(self) -> list[list[float]]:
        values = self.values.detach().float().tolist() if isinstance(self.values, Tensor) else self.values
        return [[float(value) for value in row] for row in values]


def grids(file: Path | str, *shown: ValueGrid, across: int = 3) -> None:
    """Draw grids with their titles, `across` in a row, from left to right."""
    save(file, chart(shown, across))


def chart(shown: Iterable[ValueGrid], across: int = 3) -> Markup:
    """Return the grids as SVG markup."""
    every = list(shown)
    if not every:
        raise ValueError("there are no grids to draw")
    across = min(across, len(every))
    slot = (WIDTH - (across - 1) * _GAP) / across
    y, parts = 0.0, []
    for first in range(0, len(every), across):
        row = every[first : first + across]
        drawn = [_grid(grid, slot) for grid in row]
        for i, (part, _) in enumerate(drawn):
            parts.append(tag("g", part, transform=f"translate({number(i * (slot + _GAP))} {number(y)})"))
        y += max(height for _, height in drawn) + _GAP
    title = "; ".join(grid.title for grid in every)
    return tag(
        "svg",
        tag("title", title),
        *parts,
        class_="chart",
        viewBox=f"0 0 {WIDTH} {round(y - _GAP)}",
        role="img",
        aria_label=title,
    )


def _grid(grid: ValueGrid, slot: float) -> tuple[Markup, float]:
    """One grid at the origin, and its height."""
    values = grid.numbers()
    columns = len(values[0])
    left = 6 + max(text_width(label, _FONT) for label in grid.rows) if grid.rows else 0.0
    longest = max((text_width(label, _FONT) for label in grid.columns), default=0.0)
    cell = min((slot - left - (0.45 * longest)) / columns, _CELL)
    top = 22.0 + (8 + 0.8 * longest if grid.columns else 0)
    largest = grid.top or max(max(row) for row in values) or 1.0
    parts = [
        tag("text", grid.title, x=0, y=13, class_="chart-title"),
        tag("rect", x=left, y=top, width=columns * cell, height=len(values) * cell, class_="sheet"),
    ]
    for r, row in enumerate(values):
        for c, value in enumerate(row):
            if value:
                place = {"x": left + c * cell, "y": top + r * cell, "width": cell - 0.5, "height": cell - 0.5}
                parts.append(tag("rect", **place, fill_opacity=min(value / largest, 1.0), class_="bar s0"))
    for r, label in enumerate(grid.rows):
        y = top + (r + 0.5) * cell + 4
        parts.append(tag("text", label, x=left - 6, y=y, class_="tick", text_anchor="end"))
    for c, label in enumerate(grid.columns):
        x, y = left + (c + 0.5) * cell, top - 5
        turned = f"rotate(-{_SLANT} {number(x)} {number(y)})"
        parts.append(tag("text", label, x=x, y=y, class_="tick", transform=turned))
    return join(*parts), top + len(values) * cell
