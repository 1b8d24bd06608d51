"""Every kernel compiles for GPUs, and some launch fits into their shared memory."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import flash_compile
import pytest
import torch
from flash_remote import needs_triton

SHARED = {80: 163 << 10, 90: 227 << 10}  # bytes of shared memory that a program may have, by compute capability


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(
    "case, dtype, width, dropout",
    [
        ("causal", torch.bfloat16, 64, 0.0),
        ("causal", torch.float16, 128, 0.1),
        ("packed", torch.bfloat16, 256, 0.0),
        ("sinks", torch.float32, 96, 0.0),
        ("capped", torch.float32, 256, 0.0),
        ("heads", torch.bfloat16, 128, 0.0),
        ("t5 causal", torch.bfloat16, 64, 0.1),
        ("alibi", torch.float16, 80, 0.0),
        ("dense columns", torch.bfloat16, 128, 0.0),
        ("dense rows", torch.float32, 64, 0.0),
        ("paged", torch.bfloat16, 128, 0.0),
    ],
)
@pytest.mark.parametrize("capability", SHARED)
def test_every_kernel_compiles_for_a_gpu_and_fits(
    capability: int, case: str, dtype: torch.dtype, width: int, dropout: float
) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        used = pool.submit(flash_compile.shared_memory, capability, case, dtype, width, dropout).result()
    assert len(used) == (1 if case == "paged" else 4 if case.startswith("dense") else 3)
    assert all(min(settings) <= SHARED[capability] for settings in used.values()), used
