"""The engine: a thread on which all models compute, step by step, for the requests that wait and run."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import torch

from .continuation import Ending, Work
from .decoder import CHUNK, Decoder
from .jobs import Item, Job, Jobs, Result, run_together
from .statistics import Statistics

_log = logging.getLogger(__name__)

BUDGET = 512
"""Tokens of a turn: rows count one each, and chunks of prompts are read while some are left."""
MOST_ROWS = 256


class Busy(Exception):
    """The queue is full, or the engine is ending."""


class Engine:
    """Runs decoders and other jobs on one thread, in turns.

    A turn takes one step with the rows of every decoder, then reads chunks of prompts up to `BUDGET` tokens, then does one
    job that is no decoding, or several as one batch. Requests are admitted in their order, while the tokens that they can
    have at most are not more than `most_tokens`; then at most `most_waiting` wait.
    """

    def __init__(self, most_tokens: int, most_waiting: int = 256, threads: int | None = None) -> None:
        self.most_tokens, self.most_waiting = most_tokens, most_waiting
        self.statistics = Statistics()
        self.decoders: list[Decoder] = []
        self._threads = threads or torch.get_num_threads()
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Decoder, Work]] = deque()
        self._jobs = Jobs()
        self._running: list[Work] = []
        self._ending = False
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
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._ending

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

    def submit(self, decoder: Decoder, work: Work) -> None:
        """Queue a request. Raises ValueError for one that never fits, `Busy` if too many wait."""
        self.check(work)
        with self._changed:
            self._check_room()
            self._waiting.append((decoder, work))
            self._changed.notify()

    def check(self, work: Work) -> None:
        """Raise ValueError for a request that never fits, `Busy` if too many wait now."""
        self._check_room()
        if work.tokens > self.most_tokens:
            raise ValueError(
                f"the request can have {work.tokens:,} tokens (prompt and new ones of all outputs), and this server has "
                f"room for {self.most_tokens:,}; lower max_tokens or n, or shorten the prompt"
            )

    def do(self, job: Job[Item, Result]) -> Future[Sequence[Result]]:
        """Queue a job. It is computed together with those of its kind that wait then. Raises `Busy` if too many wait."""
        with self._changed:
            self._check_room()
            self._jobs.add(job)
            self._changed.notify()
        return job.future

    def _check_room(self) -> None:
        if self._ending:
            raise Busy("the server is shutting down; try again at another one")
        if self.waiting >= self.most_waiting:
            raise Busy(f"{self.waiting} requests wait already; try again later")

    # -- the engine's thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        torch.set_num_threads(self._threads)
        with torch.inference_mode():
            while True:
                with self._changed:
                    while not (self._waiting or self._jobs or self.rows):
                        if self._ending:
                            return
                        self._changed.wait()
                self._turn()

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
                left -= max(self._safely(decoder, decoder.read), 1)
        self._do_jobs()
        self._sweep()

    def _safely(self, decoder: Decoder, work: Callable[[], int]) -> int:
        """Run one turn of a decoder. If it fails, its requests end with an error and all other requests continue."""
        try:
            return work()
        except Exception:
            self.statistics.failures += 1
            _log.exception("a step of the engine failed")
            decoder.fail("the server failed at this request; its log says why")
            return 0

    def _sweep(self) -> None:
        """Give up requests that were cancelled, and forget those that have ended."""
        for decoder in self.decoders:
            decoder.drop_cancelled()
        alive = {id(row.continuation.work) for decoder in self.decoders for row in decoder.rows}
        alive |= {id(reading.work) for decoder in self.decoders for reading in decoder.reading}
        self._running = [one for one in self._running if id(one) in alive]

    def _admit(self) -> None:
        while self._waiting and self.rows < MOST_ROWS:
            decoder, work = self._waiting[0]
            if not work.cancelled and self._running and self.tokens + work.tokens > self.most_tokens:
                return
            with self._changed:
                self._waiting.popleft()
            if work.cancelled:
                continue
            try:
                decoder.begin(work)
            except Exception:
                _log.exception("a request could not begin")
                for i in range(work.count):
                    work.tell(Ending(i, "", (), "error", "the server failed at this request; its log says why"))
            else:
                self._running.append(work)

    def _do_jobs(self) -> None:
        if self._jobs:
            with self._changed:
                taken = self._jobs.take()
            run_together(taken)
            self.statistics.joined += max(len(taken) - 1, 0)
