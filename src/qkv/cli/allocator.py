"""Memory that the process keeps: training asks for the same blocks at every step, and fresh pages cost more than arithmetic.

glibc hands large blocks back to the kernel as soon as they are freed, and the kernel clears every page when it is touched
again. Told to keep what it has, it reuses them; `tests/cli/test_allocator.py` counts the faults.
"""

from __future__ import annotations

import os
import sys

SETTING = "QKV_ALLOCATOR"  # "system" leaves everything as it is

# oneDNN keeps a kernel and its scratch memory for each of the last 1,024 shapes, and batches of sentences have ever new
# shapes, so that even a small model's process grows to gigabytes.
KERNELS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}

# malloc.h
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX, M_ARENA_MAX = -1, -2, -4, -8

KEEP_BYTES = 2**31 - 1  # free memory at the heap's end that is not given back
GROW_BYTES = 64 << 20  # how much the heap grows at a time


def bound_kernels() -> None:
    """Limit what oneDNN keeps, unless the user has said how much. It is read when PyTorch is loaded, which is later."""
    for name, value in KERNELS.items():
        os.environ.setdefault(name, value)


def keep_pages() -> bool:
    """Tell glibc to serve large blocks from its heap and not to shrink it; whether it was there and did.

    Nothing is done where the user has set an allocator or its settings, with `QKV_ALLOCATOR=system`, or without glibc.
    """
    if os.environ.get(SETTING) == "system" or not sys.platform.startswith("linux") or _users_own():
        return False
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl has none
        return False
    settings = ((M_ARENA_MAX, 1), (M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, KEEP_BYTES), (M_TOP_PAD, GROW_BYTES))
    return all(mallopt(parameter, value) == 1 for parameter, value in settings)


def _users_own() -> bool:
    """Whether the environment already says how to allocate."""
    preload = os.environ.get("LD_PRELOAD", "")
    other = any(name in preload for name in ("jemalloc", "tcmalloc", "mimalloc"))
    tuned = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    return other or tuned or any(name.startswith("MALLOC_") and name.endswith("_") for name in os.environ)
