"""Set the number of threads that PyTorch computes with on CPUs, without slowing its fused attention.

`torch.set_num_threads` also fixes the number of threads of Intel's MKL in every thread of the pool. From then on the small
matrix products inside the fused attention function, each of which belongs to one thread, start their own threads: with
PyTorch 2.13 attention took three times as long. Where PyTorch runs on GNU's OpenMP and MKL, the number is therefore set in
OpenMP alone, and in MKL for the calling thread.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch


def set_threads(number: int) -> None:
    """Compute with this many threads from now on, in operations that the calling thread starts."""
    if number == torch.get_num_threads():
        return
    libraries = _libraries()
    if libraries is not None:
        openmp, mkl, default = libraries
        openmp.omp_set_num_threads(number)
        mkl.MKL_Set_Num_Threads_Local(0 if number == default else number)  # 0 is MKL's own choice
    if torch.get_num_threads() != number:  # another OpenMP, or torch.set_num_threads has been called before
        torch.set_num_threads(number)


@cache
def _libraries() -> tuple[ctypes.CDLL, ctypes.CDLL, int] | None:
    """GNU's OpenMP and MKL as PyTorch has loaded them, and the number of threads before any change; None without them."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        path = next(line.split()[-1] for line in lines if "/libgomp" in line)
        openmp = ctypes.CDLL(path)
        mkl = ctypes.CDLL(str(Path(torch.__path__[0]) / "lib" / "libtorch_cpu.so"))
        openmp.omp_set_num_threads, mkl.MKL_Set_Num_Threads_Local  # noqa: B018  (AttributeError if they are missing)
    except (OSError, StopIteration, AttributeError):
        return None
    return openmp, mkl, torch.get_num_threads()
