"""Pools built ahead by worker processes and handed over in order: the same ones for any number of workers."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

Result = TypeVar("Result")

_AHEAD = 2  # tasks in flight for each worker
_build: Callable[..., Any]  # in a worker: what it does with a task


def ordered(build: Callable[..., Result], tasks: Iterator[tuple[Any, ...]], workers: int) -> Iterator[Result]:
    """`build(*task)` for each task, in order; by `workers` processes when there are any, else here.

    `build` and what it is bound to must pickle. The processes start afresh ("spawn"), so that they inherit neither
    threads nor an accelerator; close the iterator and they are gone. Should this process die, they end by themselves.
    """
    if workers == 0:
        for task in tasks:
            yield build(*task)
        return
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start, (build,))
    waiting: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(_work, task))
            if len(waiting) >= workers * _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise RuntimeError(
            "a data worker process died (killed, or out of memory?), or could not start because the script that calls "
            'this is not guarded by `if __name__ == "__main__":`'
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start(build: Callable[..., Any]) -> None:
    global _build
    _build = build
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the processes are the parallelism
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _work(task: tuple[Any, ...]) -> Any:
    return _build(*task)
