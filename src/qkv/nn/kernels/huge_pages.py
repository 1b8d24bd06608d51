"""Request transparent huge pages for large tensors on Linux."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

from torch import Tensor

PAGE = 2 << 20  # bytes of a huge page on most processors
MADV_HUGEPAGE = 14


def prefer_huge_pages(tensor: Tensor) -> None:
    """Advise Linux to back a large CPU tensor with huge pages, which reduces the number of page faults.

    Call it before the tensor is first written. It does nothing for small tensors, for tensors on other devices, on
    other systems, or if transparent huge pages are disabled.
    """
    if sys.platform != "linux" or not tensor.is_cpu or tensor.nbytes < 2 * PAGE:
        return
    begin = -(-tensor.data_ptr() // PAGE) * PAGE
    end = (tensor.data_ptr() + tensor.nbytes) // PAGE * PAGE
    if end > begin:
        _libc().madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), MADV_HUGEPAGE)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
