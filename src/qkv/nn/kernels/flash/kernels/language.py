"""Triton, if it is installed. Without it the files of the kernels can still be imported, but not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

jit: Callable[[Any], Any]
try:
    import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

    jit = triton.jit
except ImportError:  # there are no wheels for this platform
    triton = tl = None

    def jit(kernel: Any) -> Any:
        return kernel


# Triton decides once, when it is imported, whether its own functions are interpreted or compiled.
INTERPRETED = triton is not None and not isinstance(tl.sum, triton.JITFunction)


def tuned(*settings: tuple[int, int]) -> Callable[[Any], Any]:
    """Launch a kernel with the fastest of some (warps, pipeline stages), found by trying each once.

    They are tried again for other constants `C`, and another `size`, the length rounded up to a power of two.
    """
    if triton is None or INTERPRETED:
        return lambda kernel: kernel
    configs = [triton.Config({}, num_warps=warps, num_stages=stages) for warps, stages in settings]
    return triton.autotune(configs=configs, key=["size", "C"])
