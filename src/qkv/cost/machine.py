"""How much memory a device has left for what is about to begin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

MEMORY_INFO = Path("/proc/meminfo")
OWN_GROUP = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")


def available(device: torch.device) -> int | None:
    """Bytes that can still be taken without swapping; None where the system does not say.

    On a CPU the least of what the kernel calls available and what the limits of the process's control groups (containers,
    batch systems) leave; on a GPU what its driver calls free.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    found = [_of_the_machine(), *_of_groups()]
    return min((size for size in found if size is not None), default=None)


def _of_the_machine() -> int | None:
    for line in _text(MEMORY_INFO).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


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
