"""What `test_flash.py` compiles in a separate process: every kernel of some requests, for a GPU that need not be there."""

from __future__ import annotations

from typing import Any

import flash_worker
import torch

from qkv.nn.attention.attend import attend
from qkv.nn.kernels import flash
from qkv.nn.kernels.flash import paged_attention


class _Absent:
    """A driver of a device that code is made for and never launched on."""

    def __init__(self, capability: int) -> None:
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def shared_memory(capability: int, case: str, dtype: torch.dtype, d: int, dropout: float = 0.0) -> dict[str, list[int]]:
    """Bytes of shared memory of each kernel of a case, forward and backward, for each of its launch settings."""
    import triton
    from triton.runtime import driver

    driver.set_active(_Absent(capability))
    used: dict[str, list[int]] = {}
    compiled = triton.JITFunction.run

    def compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        made = compiled(kernel, *args, grid=(1,), warmup=True, **options)
        used.setdefault(kernel.__name__, []).append(made.metadata.shared)

    def each(tuner: Any, *args: Any, **options: Any) -> None:
        for config in tuner.configs:
            tuner.fn.run(*args, **options, **config.all_kwargs())

    triton.JITFunction.run, triton.runtime.Autotuner.run = compile_only, each
    sides = flash.sides
    flash.sides = lambda q, v: sides(q.expand(-1, 4096, -1, -1) if q.shape[1] == 1 else q.repeat(1, 8, 1, 1), v)
    flash.refuses_tensors = paged_attention.refuses_tensors = lambda *tensors: None
    if case == "paged":
        _paged(dtype, d)
        return used
    n, heads = flash_worker.T, flash_worker.HEADS
    options = flash_worker.CASES[case](torch.float32) | {"dropout": dropout}
    given = [torch.randn(2, n, k, d).to(dtype).requires_grad_() for k in (heads, 2, 2)]
    attend(*given, backend="flash", **options).sum().backward()
    return used


def _paged(dtype: torch.dtype, d: int) -> None:
    pages = torch.zeros(4, 8, 2, d, dtype=dtype)
    flash.paged(
        torch.zeros(2, 1, 4, d, dtype=dtype), pages, pages, torch.zeros(2, 2), torch.ones(2), window=5, softcap=2.0
    )
