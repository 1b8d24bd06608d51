"""A library's own training loop, in turns: it runs in a thread, and where it begins a step it waits to be let through.

So what is measured is the loop that the library's users run, data loading and logging included, and it can still take
part in rounds. Such a process should have a single arena of memory (`ONE_ARENA`): glibc gives threads other than the first
their own arenas, which treat large blocks differently, and users train in the first.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}


class Gate:
    """`train` calls `begin` as each step begins and `done` when its loss is known; `advance` lets steps happen."""

    def __init__(self) -> None:
        self._arrived, self._free = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None
        self._counts: Counter[str] = Counter()
        self._losses: list[float] = []

    def open(self, train: Callable[[], object]) -> None:
        """Start training, and come back when everything is set up and the first step is about to begin."""
        threading.Thread(target=self._run, args=(train,), daemon=True).start()
        self._wait()

    def _run(self, train: Callable[[], object]) -> None:
        try:
            train()
            self._error = RuntimeError("the training loop came to its end")
        except BaseException as error:
            self._error = error
        self._arrived.release()

    def _wait(self) -> None:
        self._arrived.acquire()
        if self._error is not None:
            raise self._error

    def begin(self, **counts: int) -> None:
        """Wait to be let through; `counts` say what is in the step's batch."""
        self._arrived.release()
        self._free.acquire()
        self._counts.update(counts)

    def done(self, loss: float) -> None:
        """The step's loss in nats a target token."""
        self._losses.append(loss)

    def advance(self, steps: int) -> dict[str, float]:
        """Let so many steps happen; gives what was counted in them, and their mean loss."""
        self._counts.clear()
        self._losses.clear()
        for _ in range(steps):
            self._free.release()
            self._wait()
        return {**self._counts, "loss": sum(self._losses) / len(self._losses)}
