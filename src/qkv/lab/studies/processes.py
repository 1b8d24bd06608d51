"""Run jobs one after another or in parallel worker processes, which stop when the parent process dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from typing import TypeVar

import torch

from ...nn.kernels.threads import set_threads

Key = TypeVar("Key")
Job = TypeVar("Job")
Result = TypeVar("Result")

SAVING = 30.0  # seconds that a worker has to save its run after the parent process has died


def do_all(
    jobs: Iterator[tuple[Key, Job]],
    work: Callable[[Job], Result | None],
    begin: Callable[[Key, Job], None],
    number: int = 1,
) -> Iterator[tuple[Key, Callable[[], Result | None]]]:
    """Yield each key with a function that returns the result of its job, None if it was interrupted.

    jobs:   asked for one by one, each when it can begin, so it may depend on the results of those before it.
    begin:  called with a job that begins.
    number: of jobs at once: with 1 in this process, else in `number` processes with an equal share of the threads each.

    After Ctrl-C, which reaches the processes too, they save and stop, and no job begins. They also save and stop if this
    process is killed, or if the caller ends the iteration.
    """
    return _in_turn(jobs, work, begin) if number == 1 else _at_once(jobs, work, begin, number)


def _in_turn(
    jobs: Iterator[tuple[Key, Job]], work: Callable[[Job], Result | None], begin: Callable[[Key, Job], None]
) -> Iterator[tuple[Key, Callable[[], Result | None]]]:
    for key, job in jobs:
        begin(key, job)
        yield key, partial(work, job)


def _at_once(
    jobs: Iterator[tuple[Key, Job]],
    work: Callable[[Job], Result | None],
    begin: Callable[[Key, Job], None],
    number: int,
) -> Iterator[tuple[Key, Callable[[], Result | None]]]:
    running: dict[Future[Result | None], Key] = {}
    left = True
    context, threads = multiprocessing.get_context("spawn"), max(1, torch.get_num_threads() // number)
    with ProcessPoolExecutor(number, mp_context=context, initializer=_start_worker, initargs=(threads,)) as pool:
        try:
            while left or running:
                while left and len(running) < number:
                    following = next(jobs, None)
                    if following is None:
                        left = False
                        break
                    key, job = following
                    begin(key, job)
                    running[pool.submit(_in_worker, work, job)] = key
                for future in wait(running, return_when=FIRST_COMPLETED).done if running else ():
                    yield running.pop(future), future.result
        except KeyboardInterrupt:
            wait(running)
            for key in running.values():
                yield key, lambda: None
        except BaseException:  # the caller ended the iteration, after an error of a job for example
            for process in multiprocessing.active_children():
                if process.pid is not None:
                    os.kill(process.pid, signal.SIGINT)  # training saves and stops
            raise


def _start_worker(threads: int) -> None:
    """Set the number of threads, and stop if the parent process dies."""
    set_threads(threads)
    threading.Thread(target=_stop_with_parent, daemon=True).start()


def _stop_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGINT)  # training saves and stops
    time.sleep(SAVING)
    os._exit(1)


def _in_worker(work: Callable[[Job], Result | None], job: Job) -> Result | None:
    result = work(job)
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(1)  # nobody waits for the result, and the next job must not begin
    return result
