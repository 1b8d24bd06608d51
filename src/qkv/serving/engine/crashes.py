"""Counts crashes of the engine or a decoder, and decides when requests are refused for a while."""

from __future__ import annotations

import time
from collections import deque

MOST = 3
WITHIN = 60.0  # seconds


class Crashes:
    """After `MOST` crashes within `WITHIN` seconds, requests are refused for `WITHIN` seconds."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MOST)

    def add(self) -> None:
        self._times.append(time.monotonic())

    @property
    def rest(self) -> float:
        """Seconds until requests are accepted again; 0 if they are now."""
        if len(self._times) < MOST or self._times[-1] - self._times[0] > WITHIN:
            return 0.0
        return max(0.0, self._times[-1] + WITHIN - time.monotonic())
