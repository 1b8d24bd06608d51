"""One contender in its own interpreter. It reads requests as lines of JSON, and answers each with one line.

    python -m bench.worker [--keep-pages]    the second with the allocator's settings that qkv's command line gives itself

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
import importlib.util
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

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("torch", "qkv", "transformers", "x-transformers", "joeynmt", "eole", "timm", "numpy")


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
        more = getattr(self.contender, "versions", {})
        return {"facts": getattr(self.contender, "facts", {}), "versions": {**versions(), **more}}

    def round(self, repeats: int) -> dict[str, Any]:
        assert self.contender is not None
        before = resource.getrusage(resource.RUSAGE_SELF)
        start = time.perf_counter()
        given = [self.contender() for _ in range(repeats)]
        seconds = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "ms": 1e3 * seconds / repeats,
            "cpu_ms": 1e3 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) / repeats,
            "system_ms": 1e3 * (after.ru_stime - before.ru_stime) / repeats,
            "faults": (after.ru_minflt - before.ru_minflt) // repeats,
            "values": means(given),
        }

    def peak(self) -> dict[str, Any]:
        """One call, and the most memory that the process held during it."""
        Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark back to what is held now
        before = resident("VmRSS")
        return {**self.round(1), "before_mib": before, "peak_mib": resident("VmHWM")}

    def profile(self, rows: int) -> dict[str, Any]:
        """The operations of one call that took most time themselves, with their share of it."""
        from torch.profiler import ProfilerActivity, _ExperimentalConfig, profile

        assert self.contender is not None
        threads = _ExperimentalConfig(profile_all_threads=True)  # some train in their own thread, see `gate`
        with profile(activities=[ProfilerActivity.CPU], experimental_config=threads) as seen:
            self.contender()
        events = sorted(seen.key_averages(), key=lambda event: -event.self_cpu_time_total)
        total = sum(event.self_cpu_time_total for event in events) or 1.0
        return {"operations": [[event.key, round(event.self_cpu_time_total / total, 4)] for event in events[:rows]]}


def means(given: list[Any]) -> dict[str, float]:
    """What calls gave, on average; nothing if they give no values."""
    values = [one for one in given if isinstance(one, dict)]
    return {name: sum(one[name] for one in values) / len(values) for name in values[0]} if values else {}


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


def keep_pages() -> None:
    """Run qkv's own settings of glibc's allocator, from its file: peers' interpreters have no qkv."""
    path = ROOT / "src" / "qkv" / "cli" / "allocator.py"
    spec = importlib.util.spec_from_file_location("allocator", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not module.keep_pages():
        raise OSError("the allocator's settings could not be made: is this glibc, and are no MALLOC_… variables set?")


def main() -> None:
    if "--keep-pages" in sys.argv:
        keep_pages()
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
