"""The pieces of a window's tokens between timestamps, and where the next window begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class WindowPiece:
    """Tokens between two timestamps: from `begin` to `end` of a window's tokens, and from `start` to `stop` of its steps."""

    begin: int
    end: int
    start: float
    stop: float


def pieces(tokens: Sequence[int], first: int, steps: float) -> tuple[list[WindowPiece], int | None]:
    """Divide a window's tokens at pairs of timestamps. `steps` is the window's length.

    Also returns the step at which the next window begins: that of the last pair, since what comes after it is cut off by
    the end of the window; None for the window's end.
    """
    times = [token >= first for token in tokens]
    cuts = [i + 1 for i in range(len(tokens) - 1) if times[i] and times[i + 1]]
    if not cuts:
        last = next((token - first for token in reversed(tokens) if token > first), None)
        return [WindowPiece(0, len(tokens), 0, steps if last is None else last)], None
    ended = times[-2:] == [False, True]
    ends = [*cuts, len(tokens)] if ended else [*cuts[:-1], cuts[-1] + 1]
    found, begin = [], 0
    for i, end in enumerate(ends):
        closing = end - 2 if i == len(ends) - 1 and not ended else end - 1
        found.append(WindowPiece(begin, end, tokens[begin] - first, tokens[closing] - first))
        begin = end
    return found, None if ended else tokens[begin - 2] - first
