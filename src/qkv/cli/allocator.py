"""Configure glibc to keep freed memory, and limit oneDNN's cache of kernels.

glibc returns large blocks to the kernel as soon as they are freed, and the kernel clears every page when it is touched
again. Training allocates the same blocks at every step, so reusing them saves page faults
(`tests/cli/test_allocator.py` counts them).
"""

from __future__ import annotations

import os
import sys

SETTING = "QKV_ALLOCATOR"  # "system" leaves everything as it is

# By default oneDNN keeps a kernel and its scratch memory for each of the last 1,024 shapes. Batches of sentences keep
# producing new shapes, so the process grows to gigabytes even with a small model.
KERNELS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}

# malloc.h
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX, M_ARENA_MAX = -1, -2, -4, -8

KEEP_BYTES = 2**31 - 1  # free memory at the end of the heap that is not returned to the kernel
GROW_BYTES = 64 << 20  # how much the heap grows at a time


def bound_kernels() -> None:
    """Limit oneDNN's cache unless the user has set its size. oneDNN reads the variables when PyTorch is loaded, later."""
    for name, value in KERNELS.items():
        os.environ.setdefault(name, value)


def keep_pages() -> bool:
    """Configure glibc to serve large blocks from its heaps and not to shrink them. Returns whether this succeeded.

    The number of heaps is the number of cores. If threads shared one heap, they would wait for its lock, for example in the
    backward pass of PyTorch's bf16 attention, where every thread allocates memory for every product. With glibc's default
    of eight heaps per core, the process holds more freed memory that other threads can't reuse.

    Does nothing if the user has configured an allocator, with `QKV_ALLOCATOR=system`, or without glibc.
    """
    if os.environ.get(SETTING) == "system" or not sys.platform.startswith("linux") or _configured_by_user():
        return False
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl has no mallopt
        return False
    settings = {
        M_ARENA_MAX: len(os.sched_getaffinity(0)),
        M_MMAP_MAX: 0,
        M_TRIM_THRESHOLD: KEEP_BYTES,
        M_TOP_PAD: GROW_BYTES,
    }
    return all(mallopt(parameter, value) == 1 for parameter, value in settings.items())


def _configured_by_user() -> bool:
    """Whether the environment already configures an allocator."""
    preload = os.environ.get("LD_PRELOAD", "")
    other = any(name in preload for name in ("jemalloc", "tcmalloc", "mimalloc"))
    tuned = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    return other or tuned or any(name.startswith("MALLOC_") and name.endswith("_") for name in os.environ)
