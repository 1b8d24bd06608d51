"""All checks, in the order of `qkv doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from . import devices, kernels, packages, speed, storage, threads
from .check import DoctorCheck


def examine(build: bool = False, measure: bool = True, seconds_of_import: float | None = None) -> Iterator[DoctorCheck]:
    """Yield the checks of versions, devices, threads, kernels, storage and, with `measure`, of speed.

    With `build`, C++ kernels that are not compiled yet are compiled.
    """
    yield from packages.checks()
    yield from devices.checks()
    yield from threads.checks()
    yield from kernels.checks(build)
    yield from storage.checks()
    if measure:
        yield from speed.checks(seconds_of_import)
