"""`watched`: when the searches inside a block chose their first token, for `qkv generate --verbose`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass
class Pace:
    """Times in seconds of `time.perf_counter`: the beginning, the first token (None before it) and the end."""

    began: float = field(default_factory=time.perf_counter)
    first: float | None = None
    ended: float | None = None

    def text(self, tokens: int) -> str:
        """The time to the first token and the rate, in words."""
        if self.first is None or self.ended is None:
            return "no token was generated"
        rate = tokens / max(self.ended - self.began, 1e-9)
        return f"first token after {self.first - self.began:.2f} s, {tokens:,} tokens at {rate:,.1f} tokens/s"


_watches: ContextVar[tuple[Pace, ...]] = ContextVar("watches", default=())  # of this thread


@contextmanager
def watched() -> Iterator[Pace]:
    """Watch the searches inside the block, of this thread only."""
    pace = Pace()
    before = _watches.set((*_watches.get(), pace))
    try:
        yield pace
    finally:
        _watches.reset(before)
        pace.ended = time.perf_counter()


def chosen() -> None:
    """Note that a search has chosen a token."""
    for pace in _watches.get():
        if pace.first is None:
            pace.first = time.perf_counter()
