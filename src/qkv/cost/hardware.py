"""How much memory a device has left for what is about to begin, and how many cores a process may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

OWN_GROUP = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")


def available(device: torch.device) -> int | None:
    """Bytes that can still be taken without swapping; None where the device does not say.

    On a CPU the least of what the system calls available and what the limits of the process's control groups (containers,
    batch systems) leave; on a GPU what its driver calls free.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    groups = (size for size in _of_groups() if size is not None)
    return min([psutil.virtual_memory().available, *groups])


def cores() -> int:
    """Cores that this process may run on."""
    process = psutil.Process()
    return len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else psutil.cpu_count() or 1


def _of_groups() -> Iterator[int | None]:
    """What each limit above the process leaves: control groups of version 2, then of version 1."""
    for line in _text(OWN_GROUP).splitlines():
        _, controllers, path = line.split(":", 2)
        names = ("memory.max", "memory.current", "inactive_file")
        root = GROUPS
        if controllers:
            if "memory" not in controllers.split(","):
                continue
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            root = GROUPS / "memory"
        folder = root / path.lstrip("/")
        for group in (folder, *(parent for parent in folder.parents if parent.is_relative_to(root))):
            yield _left(group, *names)


def _left(group: Path, limit: str, usage: str, cache: str) -> int | None:
    most, used = _text(group / limit).strip(), _text(group / usage).strip()
    if not most.isdecimal() or not used.isdecimal():
        return None  # "max", or no such group
    statistics = dict(line.split()[:2] for line in _text(group / "memory.stat").splitlines() if " " in line)
    return max(int(most) - int(used) + int(statistics.get(cache, 0)), 0)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
