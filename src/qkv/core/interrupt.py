"""Handle Ctrl-C, SIGTERM and SIGHUP as a request to stop at the end of the step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]  # Windows: no HUP


class Interrupt:
    """Within the block, the first signal only sets `requested`; a second Ctrl-C raises KeyboardInterrupt at once.

    SIGHUP comes when the terminal is closed; if it is ignored, as under `nohup`, it stays so. Python delivers signals
    to its main thread only; in another thread this does nothing.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.requested = False
        self._tell = tell
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for one in _SIGNALS:
                if one not in (signal.SIGINT, signal.SIGTERM) and signal.getsignal(one) == signal.SIG_IGN:
                    continue
                self._before[one] = signal.signal(one, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.requested:
            self.requested = True
            self._tell("Finishing this step and saving; Ctrl-C again stops at once.")
