"""One thread computes alone for a while where threads wait for each other longer than for their work."""

from __future__ import annotations

import ctypes

import pytest

from qkv.nn.kernels.native.compiler import library

MS = 1_000_000  # nanoseconds
STALL, TASK = 5 * MS, MS // 10
FAR = 1000 * MS  # between stalls that have different causes


class Clock:
    """The kernels at times that the test chooses, in the first minute after the machine's start: threads that compute now
    are not affected."""

    def __init__(self, kernels: ctypes.CDLL) -> None:
        kernels.qkv_waited.argtypes, kernels.qkv_waited.restype = [ctypes.c_long] * 3, None
        kernels.qkv_available_at.argtypes = [ctypes.c_int, ctypes.c_long]
        self.kernels, self.now = kernels, 0
        self.wait(STALL)
        self.wait(STALL)
        self.now += 10 * FAR

    def wait(self, length: int, work: int = TASK) -> None:
        self.now += length
        self.kernels.qkv_waited(length, work, self.now)

    def threads(self, of: int = 2) -> int:
        return int(self.kernels.qkv_available_at(of, self.now))

    def pause(self) -> int:
        """Milliseconds until the other threads take part again, which passes."""
        began = self.now
        while self.threads() == 1:
            self.now += MS
        return (self.now - began) // MS


@pytest.fixture
def clock() -> Clock:
    kernels = library("products")
    if kernels is None:
        pytest.skip("there is no C++ compiler here, and the kernels can't be built")
    return Clock(kernels)


def test_two_stalls_pause_the_other_threads(clock: Clock) -> None:
    clock.wait(STALL)
    assert clock.threads() == 2  # one can be an accident
    clock.wait(STALL)
    assert clock.threads() == 1 and clock.threads(of=1) == 1
    assert clock.pause() == 50 and clock.threads(of=8) == 8


def test_short_waits_are_no_stalls(clock: Clock) -> None:
    for _ in range(10):
        clock.wait(TASK)
    assert clock.threads() == 2


def test_waits_for_long_tasks_are_no_stalls(clock: Clock) -> None:
    for _ in range(10):
        clock.wait(STALL, work=STALL)
    assert clock.threads() == 2


def test_stalls_far_apart_are_accidents(clock: Clock) -> None:
    for _ in range(3):
        clock.wait(STALL)
        assert clock.threads() == 2
        clock.now += FAR


def test_pauses_grow_while_stalls_continue_and_shrink_afterwards(clock: Clock) -> None:
    clock.wait(STALL)
    pauses = []
    for _ in range(8):
        clock.wait(STALL)
        pauses.append(clock.pause())
    assert pauses == [50, 100, 200, 400, 800, 1600, 1600, 1600]
    clock.now += FAR
    clock.wait(STALL)
    clock.wait(STALL)
    assert clock.pause() == 50
