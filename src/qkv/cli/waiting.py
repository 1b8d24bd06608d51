"""Let threads that wait for each other sleep instead of spin where other programs compute on the same cores.

A thread of OpenMP that is done with its part spins until the others are done. If another program has the core that they
need, the spinning keeps them waiting longer, and so does a thread of the same process, such as the one that answers a
server's clients. GNU's OpenMP reads the variables when PyTorch is loaded.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

SPINS = "1000"  # as GNU's OpenMP spins if there are more threads than cores; 300,000 otherwise
SET_BY_USER = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")
READINGS, PAUSE = 3, 0.002
ENGINES = ("serve", "chat")  # the commands with an engine, which computes in one thread while another talks to clients


def sleep_where_cores_are_shared(command: str | None = None) -> bool:
    """Let OpenMP's waiting threads sleep sooner if other programs are computing, or for a command with an engine.
    Return whether this was set. A user's setting is kept."""
    if any(name in os.environ for name in SET_BY_USER) or not (command in ENGINES or _is_shared()):
        return False
    os.environ["GOMP_SPINCOUNT"] = SPINS
    return True


def _is_shared() -> bool:
    """Whether, in several readings, more programs were running than the machine has cores to spare."""
    affinity = getattr(os, "sched_getaffinity", None)
    if affinity is None:
        return False
    spare = (os.cpu_count() or 1) - len(affinity(0))
    for i in range(READINGS):
        if i:
            time.sleep(PAUSE)
        if _running() - 1 <= spare:  # this process is running too
            return False
    return True


def _running() -> int:
    """Tasks that run or wait for a core, in the whole system; 1, this process, if the system does not say."""
    try:
        return int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return 1
