"""Worker thread and worker processes that build results ahead and return them in order."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

Result = TypeVar("Result")

_AHEAD = 2  # tasks in flight for each worker
_THREAD = "qkv-data"
_build: Callable[..., Any]  # in a worker process: the function that runs a task


class WorkerDied(OSError):
    """A worker process died. Its task can be retried."""


def build_in_thread(
    build: Callable[..., Result], tasks: Iterator[tuple[Any, ...]], stop: Callable[[], None]
) -> Generator[Result, None, None]:
    """Run `build(*task)` for each task, in order, in a thread that is one result ahead.

    Reading files and tokenizing release Python's GIL, so the caller can compute meanwhile. Closing the iterator calls
    `stop`, which should cancel a running build, and ends the thread.
    """
    thread = ThreadPoolExecutor(1, _THREAD)
    try:
        yield from _in_order(thread, build, tasks, _AHEAD)
    finally:
        stop()
        collected = threading.current_thread().name.startswith(_THREAD)  # the garbage collector runs in such a thread
        thread.shutdown(wait=not collected, cancel_futures=True)


def build_in_processes(
    build: Callable[..., Result], tasks: Iterator[tuple[Any, ...]], workers: int
) -> Generator[Result, None, None]:
    """Run `build(*task)` for each task, in order, in `workers` processes.

    `build` must be picklable. The processes are spawned, so they inherit neither threads nor an accelerator. Closing
    the iterator ends them; if this process dies, they end by themselves.
    """
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start, (build,))
    try:
        yield from _in_order(pool, _work, tasks, workers * _AHEAD)
    except BrokenProcessPool:
        raise WorkerDied(
            "a process that reads data died: it was killed, memory ran out (lower batching.workers), or it could not start "
            'because the script that calls this is not guarded by `if __name__ == "__main__":`'
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _in_order(
    executor: Executor, work: Callable[..., Result], tasks: Iterator[tuple[Any, ...]], most: int
) -> Iterator[Result]:
    """The results of tasks, of which at most `most` run or wait at a time."""
    waiting: deque[Future[Result]] = deque()
    for task in tasks:
        waiting.append(executor.submit(work, *task))
        if len(waiting) >= most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


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


def _work(*task: Any) -> Any:
    return _build(*task)
