"""Threads that PyTorch computes with, against the cores that this process may use and that are free."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil
import torch

from ...nn.cost.hardware import usable_cores
from ...training.threads import VARIABLES
from .check import DoctorCheck

SECTION = "threads"


def checks() -> Iterator[DoctorCheck]:
    """Yield the number of threads and the load of the machine."""
    yield _threads(torch.get_num_threads(), usable_cores())
    yield _load(load(), psutil.cpu_count() or 1)


def load() -> float:
    """Programs that computed during the last minute, on average."""
    return psutil.getloadavg()[0]


def is_busy() -> bool:
    """Whether other programs take much of the cores."""
    return load() > 0.7 * (psutil.cpu_count() or 1)


def _threads(threads: int, usable: int) -> DoctorCheck:
    given = [f"{name}={os.environ[name]}" for name in VARIABLES if os.environ.get(name)]
    value = f"{threads} for {usable} {'core' if usable == 1 else 'cores'}"
    value += f" ({', '.join(given)})" if given else ""
    if threads == usable:
        return DoctorCheck(SECTION, "PyTorch", value)
    names = " and ".join(name for name in VARIABLES if os.environ.get(name))
    if threads < usable:
        remedy = f"unset {names}" if given else f"set OMP_NUM_THREADS={usable}"
        return DoctorCheck(SECTION, "PyTorch", f"{value}: some cores stay idle", "note", remedy)
    value += ": they wait for each other"
    return DoctorCheck(SECTION, "PyTorch", value, "note", f"set OMP_NUM_THREADS={usable}")


def _load(load: float, cores: int) -> DoctorCheck:
    value = f"{load:.1f} programs on {cores} {'core' if cores == 1 else 'cores'}, over the last minute"
    if load <= 0.7 * cores:
        return DoctorCheck(SECTION, "load", value)
    remedy = "`top` shows the programs; end them or wait: times measured now are too long"
    return DoctorCheck(SECTION, "load", f"{value}: others compete for the cores", "note", remedy)
