"""The engine: a thread on which all models compute, step by step, for the requests that wait and run."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Literal

import torch

from .continuation import Work
from .crashes import Crashes
from .decoder import CHUNK, FAILED, Decoder
from .jobs import Item, Job, Jobs, Result, run_together
from .statistics import Statistics

_log = logging.getLogger(__name__)

BUDGET = 512
"""Tokens of a turn: rows count one each, and chunks of prompts are read while some are left."""
MOST_ROWS = 256
CRASHED = "the engine crashed at a step and has started again; send the request again"

State = Literal["ok", "ending", "crashing", "stopped"]


class Busy(Exception):
    """The queue is full."""


class Unavailable(Busy):
    """The engine is ending, has crashed, or rests after crashes, for so many seconds."""

    def __init__(self, message: str, seconds: float = 1.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class Engine:
    """Runs decoders and other jobs on one thread, in turns.

    A turn takes one step with the rows of every decoder, then reads chunks of prompts up to `BUDGET` tokens, then does one
    job that is no decoding, or several as one batch. Requests are admitted in their order, while the tokens that they can
    have at most are not more than `most_tokens`; then at most `most_waiting` wait.

    If the step of a decoder fails, its requests end as crashed, and it forgets its prefixes. If anything else in a turn
    fails, all requests end so and the thread begins anew. After three crashes within a minute, a decoder or the engine
    refuses requests for a minute.
    """

    def __init__(self, most_tokens: int, most_waiting: int = 256, threads: int | None = None) -> None:
        self.most_tokens, self.most_waiting = most_tokens, most_waiting
        self.statistics = Statistics()
        self.decoders: list[Decoder] = []
        self._threads = threads or torch.get_num_threads()
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Decoder, Work]] = deque()
        self._jobs = Jobs()
        self._computing: Sequence[Job] = ()
        self._running: list[Work] = []
        self._ending = False
        self._admitted = 0  # requests that are computed in several jobs
        self._turn_began: float | None = None
        self.crashes = 0  # of the engine and of decoders
        self._crashes = Crashes()
        self._thread = threading.Thread(target=self._run, name="qkv-engine", daemon=True)

    # -- for other threads ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout: float | None = None) -> None:
        """Stop accepting requests, finish the accepted ones, and end the thread."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def state(self) -> State:
        """Whether requests are accepted, and why not. A decoder can rest by itself (`resting`)."""
        if self._ending:
            return "ending"
        if not self._thread.is_alive():
            return "stopped"
        return "crashing" if self._crashes.rest else "ok"

    @property
    def resting(self) -> bool:
        """Whether some decoder refuses requests after crashes."""
        return any(decoder.crashes.rest for decoder in self.decoders)

    @property
    def turn_seconds(self) -> float:
        """How long the present turn has taken; 0 between turns."""
        began = self._turn_began
        return 0.0 if began is None else time.monotonic() - began

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._jobs)

    @property
    def rows(self) -> int:
        return sum(len(decoder.rows) + len(decoder.reading) for decoder in self.decoders)

    @property
    def tokens(self) -> int:
        """Tokens for which there is a place now."""
        return sum(work.tokens for work in self._running)

    def add(self, decoder: Decoder) -> None:
        """Let a decoder take part in the turns."""
        with self._changed:
            self.decoders = [*self.decoders, decoder]

    def remove(self, decoder: Decoder) -> None:
        """Forget a decoder once it has finished the requests that it was given."""
        with self._changed:
            decoder.is_leaving = True
            self._changed.notify()

    def submit(self, decoder: Decoder, work: Work) -> None:
        """Queue a request. Raises ValueError for one that never fits, `Busy` if it can't be accepted now."""
        self.check(decoder, work)
        with self._changed:
            self._check_room()
            self._waiting.append((decoder, work))
            self._changed.notify()

    def check(self, decoder: Decoder, work: Work) -> None:
        """Raise ValueError for a request that never fits, `Busy` if it can't be accepted now."""
        self._check_room()
        _check_rest(decoder.crashes, "this model")
        if work.tokens > self.most_tokens:
            raise ValueError(
                f"the request can have {work.tokens:,} tokens (prompt and new ones of all outputs), and this server has "
                f"room for {self.most_tokens:,}; lower max_tokens or n, or shorten the prompt"
            )

    def do(self, job: Job[Item, Result], admitted: bool = False) -> Future[Sequence[Result]]:
        """Queue a job, which is joined with waiting jobs of its kind. Raises `Busy` if it can't be accepted.

        admitted: the job belongs to a request that was accepted with `admit`.
        """
        with self._changed:
            self._check_room(admitted)
            self._jobs.add(job)
            self._changed.notify()
        return job.future

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Accept a request of several jobs. Until the context ends, neither a full queue nor `close` stops its jobs.

        Raises `Busy` if the request can't be accepted.
        """
        with self._changed:
            self._check_room()
            self._admitted += 1
        try:
            yield
        finally:
            with self._changed:
                self._admitted -= 1
                self._changed.notify()

    def _check_room(self, admitted: bool = False) -> None:
        if self._ending and not admitted:
            raise Unavailable("the server is shutting down; try again at another one")
        _check_rest(self._crashes, "the engine")
        if self._thread.ident is not None and not self._thread.is_alive():
            raise Unavailable("the engine has stopped; the server has to be started again")
        if self.waiting >= self.most_waiting and not admitted:
            raise Busy(f"{self.waiting} requests wait already; try again later")

    # -- the engine's thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                torch.set_num_threads(self._threads)
                with torch.inference_mode():
                    self._loop()
                return
            except BaseException as error:
                _log.error("the engine crashed and starts again", exc_info=error)
            self._recover()

    def _loop(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._jobs or self.rows):
                    self._let_go()
                    if self._ending and not self._admitted:
                        return
                    self._changed.wait()
            self._turn_began = time.monotonic()
            self._turn()
            self._turn_began = None

    def _recover(self) -> None:
        """End everything that was accepted, forget what decoders hold, and rest if crashes repeat."""
        self.crashes += 1
        self._crashes.add()
        with self._changed:
            works = [*(work for _, work in self._waiting), *self._running]
            jobs = [*self._jobs.clear(), *self._computing]
            self._waiting.clear()
            self._running, self._computing, self._turn_began = [], (), None
        for work in works:
            work.give_up("crashed", CRASHED)
        for job in jobs:
            job.give_up(Unavailable(CRASHED))
        for decoder in self.decoders:
            decoder.restart()
        with self._changed:
            while (rest := self._crashes.rest) and not self._ending:
                self._changed.wait(rest)

    def _turn(self) -> None:
        self.statistics.steps += 1
        used = 0
        for decoder in self.decoders:
            used += self._safely(decoder, decoder.step)
        self._sweep()
        self._admit()
        left = max(BUDGET - used, CHUNK)
        for decoder in self.decoders:
            while decoder.reading and left > 0:
                left -= max(self._safely(decoder, partial(self._read, decoder)), 1)
        self._do_jobs()
        self._sweep()
        with self._changed:
            self._let_go()

    def _read(self, decoder: Decoder) -> int:
        """Read the next chunk of a prompt. What fails ends this request alone."""
        work = decoder.reading[0].work
        try:
            return decoder.read()
        except Exception as error:
            decoder.drop(work)
            self._fail(work, error)
            return 0

    def _fail(self, work: Work, error: Exception) -> None:
        """End a request that could not begin. The client gets a ValueError's message; other errors are only logged."""
        if isinstance(error, ValueError):
            work.give_up("refused", str(error))
            return
        self.statistics.failures += 1
        _log.error("a request could not begin", exc_info=error)
        work.give_up("error", FAILED)

    def _safely(self, decoder: Decoder, work: Callable[[], int]) -> int:
        """Run one turn of a decoder. If it fails, its requests end and all other requests continue."""
        try:
            return work()
        except BaseException:
            self.statistics.failures += 1
            _log.exception("a step of the engine failed")
        self.crashes += 1
        decoder.crashes.add()
        for each in decoder.restart():
            each.give_up("crashed", CRASHED)
        return 0

    def _sweep(self) -> None:
        """Give up requests that were cancelled, and forget those that have ended."""
        for decoder in self.decoders:
            decoder.drop_cancelled()
        alive = {id(row.continuation.work) for decoder in self.decoders for row in decoder.rows}
        alive |= {id(reading.work) for decoder in self.decoders for reading in decoder.reading}
        for one in self._running:
            if id(one) not in alive:
                one.give_up("crashed", CRASHED)  # has an effect only if a fault lost the request
        self._running = [one for one in self._running if id(one) in alive]

    def _let_go(self) -> None:
        """Forget the decoders that leave and have nothing to do."""
        busy = {id(decoder) for decoder, _ in self._waiting}
        kept = [d for d in self.decoders if not d.is_leaving or d.rows or d.reading or id(d) in busy]
        if len(kept) < len(self.decoders):
            self.decoders = kept

    def _admit(self) -> None:
        while self._waiting and self.rows < MOST_ROWS:
            decoder, work = self._waiting[0]
            if not work.cancelled and self._running and self.tokens + work.tokens > self.most_tokens:
                return
            with self._changed:
                self._running.append(work)
                self._waiting.popleft()
                if decoder not in self.decoders:  # it had left when this request arrived
                    self.decoders = [*self.decoders, decoder]
            if work.cancelled:
                work.give_up("cancelled")
                continue
            try:
                decoder.begin(work)
            except Exception as error:
                self._fail(work, error)

    def _do_jobs(self) -> None:
        if self._jobs:
            with self._changed:
                self._computing = self._jobs.take()
            run_together(self._computing)
            self.statistics.joined += max(len(self._computing) - 1, 0)
            self._computing = ()


def _check_rest(crashes: Crashes, what: str) -> None:
    if rest := crashes.rest:
        raise Unavailable(f"{what} crashed repeatedly and rests; try again in {rest:.0f} seconds, or restart it", rest)
