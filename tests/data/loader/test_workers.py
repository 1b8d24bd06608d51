from __future__ import annotations

import itertools
import os
import threading
import time

import pytest

from qkv.data.loader.workers import WorkerDied, build_in_processes, build_in_thread


def test_results_come_in_order_one_ahead() -> None:
    begun: list[int] = []

    def build(n: int) -> int:
        begun.append(n)
        return n * n

    made = build_in_thread(build, ((n,) for n in itertools.count()), lambda: None)
    assert [next(made) for _ in range(5)] == [0, 1, 4, 9, 16]
    _wait_until(lambda: len(begun) == 6)
    time.sleep(0.05)
    assert begun == [0, 1, 2, 3, 4, 5]  # and no further
    made.close()


def test_a_process_that_dies_is_told_as_what_it_is() -> None:
    with pytest.raises(WorkerDied, match=r"it was killed, memory ran out \(lower batching\.workers\)"):
        next(build_in_processes(os._exit, iter([(1,)]), 1))


def test_closing_ends_what_is_running() -> None:
    stopped, running = threading.Event(), threading.Event()

    def build(n: int) -> int:
        if n:
            running.set()
            assert stopped.wait(20)
        return n

    made = build_in_thread(build, ((n,) for n in range(9)), stopped.set)
    assert next(made) == 0 and running.wait(20)
    began = time.monotonic()
    made.close()
    assert time.monotonic() - began < 10 and threading.active_count() == len(threading.enumerate())
    assert not any(thread.name.startswith("qkv-data") and thread.is_alive() for thread in threading.enumerate())


def test_an_error_is_raised_in_its_turn() -> None:
    def build(n: int) -> int:
        return 6 // n

    made = build_in_thread(build, ((n,) for n in (3, 2, 0, 1)), lambda: None)
    assert [next(made), next(made)] == [2, 3]
    with pytest.raises(ZeroDivisionError):
        next(made)


def _wait_until(condition: object, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)
