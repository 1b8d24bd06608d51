"""Which devices multiply bf16 matrices with instructions made for it, rather than by way of fp32."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

CPU_INFO = Path("/proc/cpuinfo")

# The fastest first. AMX multiplies tiles, AVX-512 and Arm's extensions multiply pairs within a vector.
_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "sve_bf16", "svebf16", "bf16")


@lru_cache(maxsize=8)
def bf16_instructions(device: torch.device) -> str | None:
    """What makes bf16 native on a device, such as `amx_bf16` or `compute capability 9.0`; None where nothing does.

    On CPUs oneDNN has to be there too: without it PyTorch multiplies bf16 matrices element by element. GPUs have it from
    NVIDIA's compute capability 8.0 on, and on AMD's with ROCm. Apple's GPUs count as without, not having been measured.
    """
    if device.type == "cpu":
        found = cpu_features() & set(_INSTRUCTIONS)
        usable = found and torch.backends.mkldnn.is_available()
        return next(name for name in _INSTRUCTIONS if name in found) if usable else None
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        major, minor = torch.cuda.get_device_capability(device)
        return f"compute capability {major}.{minor}"
    return None


def cpu_features() -> set[str]:
    """The names of what a CPU can do: PyTorch's own look at it, where this version has one, and the Linux kernel's."""
    asked: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    named = {name for name, value in asked.items() if value is True}
    try:
        lines = CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return named
    listed = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return named | set(listed.partition(":")[2].split())
