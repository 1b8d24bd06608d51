"""One contender in its own interpreter. It reads requests as lines of JSON, and answers each with one line.

    {"do": "make", "what": "module:Class", "options": {…}}   → {"facts": {…}, "versions": {…}}
    {"do": "round", "repeats": 3}                            → {"ms": 12.3, "system_ms": 0.4, "faults": 17, "values": {…}}
    {"do": "peak"}                                           → the same, and {"before_mib": 310.0, "peak_mib": 402.5}
    {"do": "profile", "rows": 8}                             → {"operations": [["aten::addmm", 0.61], …]}

Whatever goes wrong is answered as {"error": "…"}. The end of its input ends the process.
"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import json
import os
import platform
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBRARIES = ("torch", "qkv", "transformers", "x-transformers", "numpy")


class Bench:
    """Holds the contender of the moment."""

    def __init__(self) -> None:
        self.contender: Callable[[], Any] | None = None

    def make(self, what: str, options: dict[str, Any]) -> dict[str, Any]:
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.contender = None  # the last one's memory comes back first
        gc.collect()
        module, name = what.split(":")
        self.contender = getattr(importlib.import_module(module), name)(**options)
        return {"facts": getattr(self.contender, "facts", {}), "versions": versions()}

    def round(self, repeats: int) -> dict[str, Any]:
        assert self.contender is not None
        before = resource.getrusage(resource.RUSAGE_SELF)
        start = time.perf_counter()
        for _ in range(repeats):
            values = self.contender()
        seconds = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "ms": 1e3 * seconds / repeats,
            "cpu_ms": 1e3 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) / repeats,
            "system_ms": 1e3 * (after.ru_stime - before.ru_stime) / repeats,
            "faults": (after.ru_minflt - before.ru_minflt) // repeats,
            "values": values if isinstance(values, dict) else {},
        }

    def peak(self) -> dict[str, Any]:
        """One call, and the most memory that the process held during it."""
        Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark back to what is held now
        before = resident("VmRSS")
        return {**self.round(1), "before_mib": before, "peak_mib": resident("VmHWM")}

    def profile(self, rows: int) -> dict[str, Any]:
        """The operations of one call that took most time themselves, with their share of it."""
        from torch.profiler import ProfilerActivity, profile

        assert self.contender is not None
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            self.contender()
        events = sorted(seen.key_averages(), key=lambda event: -event.self_cpu_time_total)
        total = sum(event.self_cpu_time_total for event in events) or 1.0
        return {"operations": [[event.key, round(event.self_cpu_time_total / total, 4)] for event in events[:rows]]}


def resident(what: str) -> float:
    """MiB that this process holds (VmRSS), or has held at most (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/self/status has no {what}")


def versions() -> dict[str, str]:
    """Of Python and of what this environment has of the libraries that matter."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not look like an answer
    bench = Bench()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(bench, request.pop("do"))(**request)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
