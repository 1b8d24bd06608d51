"""On what, and of what, a measurement was taken: the machine, its load, the code."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FAST = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8")  # instructions that decide speeds


def describe() -> dict[str, Any]:
    """The processor as it names itself, how many cores of it are here, and memory."""
    model, flags = _processor()
    return {
        "processor": model or platform.machine(),
        "instructions": [flag for flag in FAST if flag in flags],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def stamp() -> dict[str, Any]:
    """What every result holds: the date, the machine, the code, and the versions of Python and PyTorch."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe(),
        "code": code(),
        "versions": {"python": platform.python_version(), "torch": version("torch")},
    }


def load() -> float:
    """Processes that were running or waiting to, on average over the last minute."""
    return round(os.getloadavg()[0], 2)


def code() -> dict[str, Any]:
    """The commit, whether the sources differ from it, and a digest of them as they are."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    return {
        "commit": _git("rev-parse", "--short", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--", "src")),
        "digest": digest.hexdigest()[:12],
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def _processor() -> tuple[str, set[str]]:
    info = Path("/proc/cpuinfo")
    fields: dict[str, str] = {}
    for line in info.read_text().splitlines() if info.exists() else []:
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields.get("model name", ""), set(fields.get("flags", "").split())
