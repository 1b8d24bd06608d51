"""`Axis`: the tokens along one side of attention weights, with the ones on display."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.layout import Grid

MOST_TOKENS = 64  # on display unless others are chosen
MOST_QUERIES = 101  # of a picture


@dataclass(frozen=True, eq=False)
class Axis:
    """The tokens of one sequence, of which those at the indices `shown` are on display.

    name:    "text", "source", "output", "picture", "sound" or "video".
    labels:  of the tokens on display.
    total:   number of tokens of the sequence.
    queries: indices of the tokens on display as queries, if fewer than `shown`: a picture has all its patches as keys.
    writes:  the likeliest next token after each token on display; empty if the model predicts none.
    grid:    the grid of patches of a picture; None for texts.
    picture: the picture as a PNG file.
    """

    name: str
    labels: tuple[str, ...]
    shown: tuple[int, ...]
    total: int
    queries: tuple[int, ...] | None = None
    writes: tuple[str, ...] = ()
    grid: Grid | None = None
    picture: bytes | None = None

    @property
    def rows(self) -> tuple[int, ...]:
        """Indices of the queries on display."""
        return self.shown if self.queries is None else self.queries

    @property
    def row_labels(self) -> tuple[str, ...]:
        """Labels of the queries on display."""
        if self.queries is None:
            return self.labels
        by_index = dict(zip(self.shown, self.labels, strict=True))
        return tuple(by_index[i] for i in self.queries)

    @property
    def note(self) -> str:
        """Say which tokens are on display if not all are; empty if all are."""
        if len(self.rows) == self.total:
            return ""
        if self.grid is not None:
            return f"{len(self.rows)} of the {self.total:,} tokens of the {self.name} are drawn as queries, all as keys"
        first, last = self.shown[0], self.shown[-1]
        which = f"the first {len(self.shown)}" if first == 0 else f"{first} to {last}"
        return f"The {self.name} has {self.total:,} tokens; {which} are drawn (--tokens chooses others)"

    def to_json(self) -> dict[str, Any]:
        grid = None if self.grid is None else self.grid._asdict()
        return {
            "name": self.name,
            "labels": list(self.labels),
            "shown": list(self.shown),
            "rows": list(self.rows),
            "total": self.total,
            "writes": list(self.writes),
            "grid": grid,
        }


def window(total: int, tokens: tuple[int, int] | None) -> tuple[int, ...]:
    """Return the indices on display: `tokens` (start, stop), by default the first `MOST_TOKENS`.

    Raises ValueError if that range holds no token.
    """
    start, stop = (0, MOST_TOKENS) if tokens is None else tokens
    indices = tuple(range(start, min(stop, total)))
    if not indices:
        raise ValueError(f"tokens {start}:{stop} hold none of the {total} tokens; choose a range within 0:{total}")
    return indices


def patch_labels(grid: Grid) -> tuple[str, ...]:
    """Return labels of the tokens of a picture: `class`, `patch row,column` …"""
    before = [_extra(i, grid.before, "class") for i in range(grid.before)]
    patches = [f"{row},{column}" for row in range(grid.rows) for column in range(grid.columns)]
    return (*before, *patches, *(_extra(i, grid.after, "token") for i in range(grid.after)))


def _extra(i: int, count: int, name: str) -> str:
    return name if count == 1 else f"{name} {i}"


def spread(grid: Grid, most: int = MOST_QUERIES) -> tuple[int, ...]:
    """Return at most `most` tokens of a picture as queries: those before the patches, and patches on an even lattice."""
    stride = 1
    while grid.before + -(-grid.rows // stride) * -(-grid.columns // stride) > most:
        stride += 1
    first = stride // 2
    rows, columns = (range(min(first, size - 1), size, stride) for size in (grid.rows, grid.columns))
    patches = (grid.before + row * grid.columns + column for row in rows for column in columns)
    return (*range(grid.before), *patches)
