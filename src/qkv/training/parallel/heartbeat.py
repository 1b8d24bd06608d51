"""Heartbeats: each rank tells the others where it is, so a rank that hangs or died can be named.

gloo raises an exception in the thread that waits. NCCL does not: its watchdog ends the process after a timeout, and
says nothing of the cause. On GPUs each rank therefore watches itself, and before that ends with the name of the rank at
fault. There a rank may wait for others at any line of Python while its GPU has not finished. The queue of a GPU that
waits in a collective operation fills up, and the next kernel that is started waits too.
"""

from __future__ import annotations

import json
import linecache
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist

from .launch import leave_error
from .world import ADDRESS, PORT, World

INTERVAL = 5.0  # seconds between two heartbeats, at most
_WAITING = tuple(f"{Path(path).parent.as_posix()}/" for path in (dist.__file__, __file__))  # modules that communicate
_ACTS = "team.py"  # calls what a rank computes by itself
_READS = (".item(", ".tolist(", ".cpu(", "synchronize(")  # where a process waits for its GPU


class RankLost(RuntimeError):
    """Another rank died, hangs, or can't be reached."""


class Heartbeat:
    """Tells the others every few seconds that this rank lives, and where in the code it is.

    watches: end the process if it waits for other ranks longer than the timeout.
    """

    def __init__(self, world: World, timeout: float, watches: bool = False) -> None:
        self.world, self.interval = world, min(INTERVAL, timeout / 4)
        self.timeout, self.watches = timeout, watches
        self._device = torch.cuda.current_device() if watches and torch.cuda.is_available() else None
        self._seen: tuple[int, str] | None = None
        self._since = time.monotonic()
        self._stop, self._main = threading.Event(), threading.get_ident()
        self._store = dist.TCPStore(
            os.environ[ADDRESS],
            int(os.environ[PORT]),
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(seconds=timeout),
        )
        acts = (self._beat, self._watch) if watches else (self._beat,)
        self._threads = [threading.Thread(target=act, daemon=True) for act in acts]

    def __enter__(self) -> Heartbeat:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * self.interval)

    def _beat(self) -> None:
        beat = 0
        while not self._stop.is_set():
            beat += 1
            try:
                self._store.set(_key(self.world.rank), json.dumps([beat, *self._where()]))
            except RuntimeError:  # rank 0, which has the store, has ended
                if self.watches:
                    self._give_up()
                return
            self._stop.wait(self.interval)

    def _watch(self) -> None:
        """Run in a second thread, because the first one waits without end if rank 0 is stopped."""
        while not self._stop.wait(self.interval):
            if self._stuck(*self._where()):
                self._give_up()
                return

    def _where(self) -> tuple[str, bool]:
        place, waiting = where(sys._current_frames().get(self._main))
        return place, waiting or (self._device is not None and is_busy(self._device, self.interval))

    def _stuck(self, place: str, waiting: bool) -> bool:
        """Whether the rank has been waiting in one place for longer than the timeout, without another operation."""
        seen = World.operations, place
        if seen != self._seen or not waiting:
            self._seen, self._since = seen, time.monotonic()
        return time.monotonic() - self._since > self.timeout

    def _give_up(self) -> None:
        """End the process, with the message for a rank that is lost."""
        text = str(self.lost(RuntimeError("no rank continued within scale.timeout")))
        if not self._stop.is_set():
            if not leave_error(text, lost=True):
                print(f"qkv: {text}", file=sys.stderr, flush=True)
            os._exit(1)

    def lost(self, error: Exception) -> RankLost:
        """The error to raise for a failed communication, which names the ranks that hang or are silent."""
        others = [rank for rank in range(self.world.size) if rank != self.world.rank]
        before = self._answers(others)
        time.sleep(1.5 * self.interval)
        now = self._answers(others)
        if before is None or now is None:
            return RankLost("rank 0 ended, or does not answer any more, or its machine can't be reached")
        silent = [rank for rank in others if now[rank] is None or now[rank] == before[rank]]
        if silent:
            named = ", ".join(map(str, silent))
            return RankLost(f"{'ranks' if len(silent) > 1 else 'rank'} {named} ended, or does not answer any more")
        busy = [(rank, state) for rank, state in now.items() if state is not None and not state[2]]
        if busy:
            rank, state = busy[0]
            return RankLost(f"rank {rank} hangs in {state[1]}, for which the others wait")
        return RankLost(f"the communication between the ranks failed: {' '.join(str(error).split())[:200]}")

    def _answers(self, ranks: Sequence[int]) -> dict[int, tuple[int, str, bool] | None] | None:
        """Return the last heartbeat of each rank, or None if rank 0, which holds the store, does not answer.

        A thread asks it, because a call to the store of a stopped process does not return.
        """
        found: dict[int, tuple[int, str, bool] | None] = {}

        def ask() -> None:
            with suppress(RuntimeError):
                found.update({rank: self._read(rank) for rank in ranks})

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(self.interval)
        return found if len(found) == len(ranks) else None

    def _read(self, rank: int) -> tuple[int, str, bool] | None:
        if not self._store.check([_key(rank)]):
            return None
        beat, place, waiting = json.loads(self._store.get(_key(rank)))
        return beat, place, waiting


def is_busy(device: int, patience: float) -> bool:
    """Whether a GPU has unfinished work. A thread asks it, because the driver may not answer while another thread starts
    a kernel; no answer within `patience` seconds counts as busy."""
    finished: list[bool] = []

    def ask() -> None:
        with suppress(RuntimeError):  # an error of an earlier kernel
            finished.append(torch.cuda.default_stream(device).query())

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(patience)
    return finished != [True]


def _key(rank: int) -> str:
    return f"qkv/heartbeat/{rank}"


def where(frame: FrameType | None) -> tuple[str, bool]:
    """The innermost place in the code of a frame, and whether it waits for other ranks there."""
    if frame is None:
        return "no Python code", False
    place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} ({frame.f_code.co_name})"
    reads = any(word in linecache.getline(frame.f_code.co_filename, frame.f_lineno) for word in _READS)
    waiting, depth = False, 0
    while frame is not None and depth < 4:
        path = Path(frame.f_code.co_filename).as_posix()
        waiting = waiting or (path.startswith(_WAITING) and not path.endswith(_ACTS))
        frame, depth = frame.f_back, depth + 1
    return place, waiting or reads


def is_communication(error: Exception) -> bool:
    """Whether an exception comes from a communication between ranks."""
    text = str(error)
    signs = (
        "gloo",
        "NCCL",
        "caused pair closure",
        "Connection closed by peer",
        "Connection reset",
        "ProcessGroup",
        "Broken pipe",
        "TCPStore",
    )
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and any(sign in text for sign in signs)
    )
