"""Available memory of a device, and the number of CPU cores that the process may use."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

OWN_GROUP = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")


def available(device: torch.device) -> int | None:
    """Return the bytes that can be allocated without swapping; None for a device that does not report them.

    On a CPU it is the minimum of the system's available memory and of what the limits of the process's control groups
    (containers, batch systems) leave; on a GPU the free memory that its driver reports.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    groups = (size for size in _left_in_groups() if size is not None)
    return min([psutil.virtual_memory().available, *groups])


def cores() -> int:
    """Return the number of cores that this process may run on."""
    process = psutil.Process()
    return len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else psutil.cpu_count() or 1


def usable_cores() -> int:
    """Return the number of cores that this process may run on and that its container's quota leaves it."""
    quota = cpu_quota()
    return cores() if quota is None else max(1, min(cores(), math.ceil(quota)))


def cpu_quota() -> float | None:
    """Return the number of cores that the process's control groups (containers) leave it; None without a limit."""
    quotas = []
    for group, version in _groups("cpu"):
        limit = _text(group / "cpu.max").split()
        if version == 1:
            limit = [_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        if len(limit) == 2 and all(value.isdecimal() for value in limit):  # not "max", nor −1
            quotas.append(int(limit[0]) / int(limit[1]))
    return min(quotas, default=None)


def _left_in_groups() -> Iterator[int | None]:
    """Yield the bytes that each limit above the process leaves."""
    for group, version in _groups("memory"):
        names = ("memory.max", "memory.current", "inactive_file")
        if version == 1:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        yield _left(group, *names)


def _groups(controller: str) -> Iterator[tuple[Path, int]]:
    """Yield the folders of the process's control groups that have a controller, and the version of each: 2 or 1."""
    for line in _text(OWN_GROUP).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = GROUPS / controller if controllers else GROUPS
        folder = root / path.lstrip("/")
        for group in (folder, *(parent for parent in folder.parents if parent.is_relative_to(root))):
            yield group, 1 if controllers else 2


def _left(group: Path, limit: str, usage: str, cache: str) -> int | None:
    bound, used = _text(group / limit).strip(), _text(group / usage).strip()
    if not bound.isdecimal() or not used.isdecimal():
        return None  # "max", or no such group
    statistics = dict(line.split()[:2] for line in _text(group / "memory.stat").splitlines() if " " in line)
    return max(int(bound) - int(used) + int(statistics.get(cache, 0)), 0)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
