"""Choose how many threads a training on a CPU computes with, by timing passes after its first step and if its pace changes.

Threads of one operation wait for the slowest of them. If another program takes a core, two threads can be slower than
one, and small models may be faster with fewer threads even on quiet cores. The number is chosen by forward and backward
passes whose gradients are thrown away, so neither the number nor the steps depend on each other. The first step, which also
loads code and touches new memory, uses all cores, or after a resumption the number of the checkpoint. As long as the same
number is chosen, a training repeats and resumes bit for bit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import psutil
import torch

from ..nn.cost.hardware import usable_cores
from ..nn.kernels.threads import set_threads

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables by which users fix the number of threads."""

ROUNDS = 3
LEAST = 0.05  # seconds that a timing takes at least, by repeating the pass
LONG = 1.0  # seconds of a pass that is timed once only
GAIN = 1.05  # how much faster another number has to be before it is taken
WINDOW = 1.0  # seconds over which the pace and the load are compared with the last choice's
PACE, LOAD = 1.25, 0.4  # changes that lead to a new choice: a factor of the seconds per token, and busy cores
SHARE = 20.0  # a choice waits for this many times the duration of the one before, and twice as long after each in vain


@dataclass(frozen=True)
class ThreadChoice:
    """The number of threads, and what it rests on.

    seconds: of a pass, by the number of threads.
    others:  cores that other programs kept busy meanwhile.
    before:  the number until now.
    """

    threads: int
    seconds: dict[int, float]
    others: float
    before: int

    def __str__(self) -> str:
        return sentence(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The choice as JSON data, as it is logged."""
        seconds = {str(n): round(value, 6) for n, value in self.seconds.items()}
        return {"threads": self.threads, "seconds": seconds, "others": round(self.others, 2)}


def sentence(choice: Mapping[str, Any]) -> str:
    """Say what was chosen and why, from `ThreadChoice.to_dict`."""
    n, others = choice["threads"], choice["others"]
    timings = ", ".join(f"{1000 * value:.3g} ms with {number}" for number, value in choice["seconds"].items())
    busy = f"; other programs keep {others:.1f} cores busy" if others > LOAD else ""
    return f"Computing with {n} {'thread' if n == 1 else 'threads'}: a pass takes {timings}{busy}."


@dataclass
class OtherLoad:
    """Cores that this process may use and that other programs kept busy since the last call."""

    _then: tuple[float, float, float] = field(default_factory=lambda: _busy())

    def __call__(self) -> float:
        now = _busy()
        wall, busy, own = (new - old for new, old in zip(now, self._then, strict=True))
        self._then = now
        return max(0.0, (busy - own) / wall) if wall > 0 else 0.0


def _busy() -> tuple[float, float, float]:
    """Seconds on the clock, seconds that the cores of this process were busy, and seconds of this process."""
    process = psutil.Process()
    allowed = set(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else None
    cores = [times for i, times in enumerate(psutil.cpu_times(percpu=True)) if allowed is None or i in allowed]
    idle = sum(times.idle + getattr(times, "iowait", 0.0) + getattr(times, "guest", 0.0) for times in cores)
    total = sum(sum(times) - getattr(times, "guest_nice", 0.0) for times in cores)
    own = process.cpu_times()
    return time.monotonic(), total - idle, own.user + own.system


def candidates(cores: int) -> list[int]:
    """Numbers of threads that are compared: all cores, half of them, a quarter … and one."""
    numbers = [cores]
    while numbers[-1] > 1:
        numbers.append(numbers[-1] // 2)
    return numbers


class ThreadTuner:
    """Sets the number of threads of PyTorch for one training.

    Call `choose` if `due`, and `watch` after each step. `begin` sets the number of the steps before the first choice.
    """

    def __init__(
        self,
        numbers: Sequence[int] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        others: Callable[[], float] | None = None,
        set_threads: Callable[[int], None] = set_threads,
    ) -> None:
        self.numbers = list(numbers or candidates(usable_cores()))
        self.threads = self.numbers[0]
        self.clock, self.others, self.set_threads = clock, others or OtherLoad(), set_threads
        self.due = False
        self._chosen = False
        self._share, self._not_before = SHARE, 0.0
        self._paces: list[float] = []
        self._elapsed, self._streak = 0.0, 0
        self._reference: tuple[float, float] | None = None  # seconds per token and load at the last choice

    def begin(self, threads: int) -> None:
        """Compute with this number until the first choice, if it is one of those that are compared."""
        if threads in self.numbers:
            self.threads = threads
            self.set_threads(threads)

    def choose(self, run: Callable[[], None]) -> ThreadChoice:
        """Time `run` with each number in turns, and take the fastest; the present one unless another gains 5 %."""
        began, before = self.clock(), self.threads
        self.others()
        numbers = [before, *(n for n in self.numbers if n != before)]
        taken: dict[int, list[float]] = {n: [] for n in numbers}
        for _ in range(ROUNDS):
            for n in numbers:
                self.set_threads(n)
                taken[n].append(self._time(run, warm=bool(taken[n])))
            if max(min(times) for times in taken.values()) > LONG or _is_clear(taken):
                break
        load = self.others()
        seconds = {n: median(taken[n]) for n in sorted(taken)}
        fastest = min(seconds, key=lambda n: seconds[n])
        self.threads = fastest if seconds[fastest] * GAIN < seconds[before] else before
        self.set_threads(self.threads)
        self._share = SHARE if self.threads != before else 2 * self._share
        self._paces, self._elapsed, self._streak, self._reference = [], 0.0, 0, None
        self._not_before = self.clock() + self._share * (self.clock() - began)
        self.due, self._chosen = False, True
        return ThreadChoice(self.threads, seconds, max(0.0, load), before)

    def watch(self, tokens: int, seconds: float) -> None:
        """Record the pace of a step. A choice is `due` after the first step, and when the pace or the load of other programs
        has changed."""
        if len(self.numbers) == 1 or not tokens:
            return
        if not self._chosen:
            self.due = True
            return
        self._paces.append(seconds / tokens)
        self._elapsed += seconds
        if self._elapsed < WINDOW or len(self._paces) < 3:
            return
        pace, load = median(self._paces), self.others()
        self._paces, self._elapsed = [], 0.0
        if self._reference is None:
            self._reference = pace, load
            return
        slower = max(pace / self._reference[0], self._reference[0] / pace)
        changed = slower > PACE or abs(load - self._reference[1]) > LOAD
        self._streak = self._streak + 1 if changed else 0
        self.due = self._streak >= 2 and self.clock() >= self._not_before

    def _time(self, run: Callable[[], None], warm: bool) -> float:
        """Seconds of one run, by repeating a short one; the first with another number of threads is not counted."""
        if not warm:
            began = self.clock()
            run()
            first = self.clock() - began
            if first > LONG:
                return first
        began, runs = self.clock(), 0
        while runs == 0 or self.clock() - began < LEAST:
            run()
            runs += 1
        return (self.clock() - began) / runs


def _is_clear(taken: dict[int, list[float]]) -> bool:
    """Whether the fastest number stands after two rounds, because it was faster each time by a third."""
    if min(map(len, taken.values())) < 2:
        return False
    fastest = min(taken, key=lambda n: median(taken[n]))
    return all(min(times) > 1.3 * max(taken[fastest]) for n, times in taken.items() if n != fastest)


def tuner(threads: int | str, compiled: bool, ranks: int, device: torch.device) -> ThreadTuner | None:
    """The tuner of a training, or None if the number is fixed: by the setting, by an environment variable, by the
    launcher of several ranks, or because compiled code would be compiled again for each number.

    A number given as the setting is set here.
    """
    if device.type != "cpu":
        return None
    if isinstance(threads, int):
        set_threads(threads)
        return None
    if compiled or ranks > 1 or any(os.environ.get(name) for name in VARIABLES):
        return None
    return ThreadTuner()
