"""Do jobs one after another, or several at once in processes of their own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TypeVar

Key = TypeVar("Key")
Job = TypeVar("Job")
Result = TypeVar("Result")


def in_turn(
    jobs: Iterator[tuple[Key, Job]], work: Callable[[Job], Result | None], begin: Callable[[Key, Job], None]
) -> Iterator[tuple[Key, Callable[[], Result | None]]]:
    """Yield each key with a function that does its job. A job is asked for when the one before it is done."""
    for key, job in jobs:
        begin(key, job)
        yield key, lambda job=job: work(job)  # type: ignore[misc]


def at_once(
    jobs: Iterator[tuple[Key, Job]],
    work: Callable[[Job], Result | None],
    begin: Callable[[Key, Job], None],
    number: int,
) -> Iterator[tuple[Key, Callable[[], Result | None]]]:
    """The same with `number` processes. After Ctrl-C, which reaches them too, they save and stop, and no job begins; the
    function then returns None."""
    running: dict[Future[Result | None], Key] = {}
    left = True
    with ProcessPoolExecutor(number, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            while left or running:
                while left and len(running) < number:
                    following = next(jobs, None)
                    if following is None:
                        left = False
                        break
                    key, job = following
                    begin(key, job)
                    running[pool.submit(work, job)] = key
                for future in wait(running, return_when=FIRST_COMPLETED).done if running else ():
                    yield running.pop(future), future.result
        except KeyboardInterrupt:
            wait(running)
            for key in running.values():
                yield key, lambda: None
