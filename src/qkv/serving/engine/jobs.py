"""Engine jobs other than decoding. Jobs of the same kind that wait at the same time are computed as one batch."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_JOINED = 128
"""Inputs of a batch of several jobs."""
MOST_CHARACTERS = 1 << 15
"""Characters of such a batch, so decoding doesn't wait long for it."""


@dataclass(eq=False)
class Job(Generic[Item, Result]):
    """Something to compute: `compute` gives a result for each of the inputs.

    kind: jobs of one kind have the same `compute` and can be joined; None for a job that is computed by itself.
    """

    compute: Callable[[Sequence[Item]], Sequence[Result]]
    inputs: Sequence[Item]
    kind: Hashable | None = None
    future: Future[Sequence[Result]] = field(default_factory=Future)

    def __post_init__(self) -> None:
        self.characters = sum(len(str(each)) for each in self.inputs)

    def pieces(self, most: int = MOST_JOINED) -> list[Job[Item, Result]]:
        """Split it into jobs of at most `most` inputs and `MOST_CHARACTERS`; an input that has more is a job alone."""
        parts: list[list[Item]] = []
        characters = 0
        for each in self.inputs:
            characters += (size := len(str(each)))
            if not parts or len(parts[-1]) >= most or characters > MOST_CHARACTERS:
                parts.append([])
                characters = size
            parts[-1].append(each)
        return [Job(self.compute, part, self.kind) for part in parts]

    def run(self) -> None:
        try:
            self.future.set_result(_quietly(self.compute, self.inputs))
        except Exception as error:
            self.future.set_exception(error)
        except BaseException as error:  # SystemExit, which would end whoever waits for the result
            self.future.set_exception(RuntimeError(f"the computation ended with {type(error).__name__}"))

    def give_up(self, error: Exception) -> None:
        """Raise an error where the result is awaited, unless there is one."""
        if not self.future.done():
            self.future.set_exception(error)


def alone(work: Callable[[], Result]) -> Job[None, Result]:
    """A job that is computed by itself, with one result."""
    return Job(lambda _: [work()], [None])


class Jobs:
    """The waiting jobs, in order. Not thread-safe: the engine holds the lock."""

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, job: Job[Item, Result]) -> None:
        self._waiting.append(job)

    def take(self) -> list[Job]:
        """Remove and return the oldest job and those that can be joined to it. Cancelled ones are dropped."""
        taken: list[Job] = []
        kept: deque[Job] = deque()
        inputs = characters = 0
        for job in self._waiting:
            alike = not taken or (job.kind is not None and job.kind == taken[0].kind)
            fits = inputs + len(job.inputs) <= MOST_JOINED and characters + job.characters <= MOST_CHARACTERS
            if taken and not (alike and fits):
                kept.append(job)
            elif job.future.set_running_or_notify_cancel():
                taken.append(job)
                inputs, characters = inputs + len(job.inputs), characters + job.characters
        self._waiting = kept  # assigned last, so no job is lost if something fails before
        return taken

    def clear(self) -> list[Job]:
        """Remove and return all jobs."""
        cleared, self._waiting = list(self._waiting), deque()
        return cleared


def run_together(jobs: Sequence[Job]) -> None:
    """Compute some jobs of one kind as one batch. If that fails, each is computed by itself, so none harms another."""
    if len(jobs) > 1:
        try:
            results = _quietly(jobs[0].compute, [each for job in jobs for each in job.inputs])
        except Exception:
            results = None
        if results is not None:
            start = 0
            for job in jobs:
                job.future.set_result(results[start : start + len(job.inputs)])
                start += len(job.inputs)
            return
    for job in jobs:
        job.run()


def _quietly(compute: Callable[[Sequence[Item]], Sequence[Result]], inputs: Sequence[Item]) -> Sequence[Result]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they quote the words of requests, which belong in no log
        return compute(inputs)
