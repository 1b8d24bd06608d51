"""Our Triton kernels against the reference in float64, forward and backward, as Triton's interpreter computes them.

Triton decides when it is imported whether it interprets; so all of it runs in one process beside the tests.
"""

from __future__ import annotations

import flash_worker
import pytest
import torch
from fast_subset import thinned
from flash_remote import LIMITS, Remote, needs_triton

# One of most cases, dtypes and shapes (key-value heads, width of keys, of values) in turn.
SHAPES = ((4, 16, 16), (2, 24, 16), (1, 32, 40), (2, 64, 64))
DTYPES = (torch.float32, torch.float16)
LATER = {
    "causal",
    "t5",
    "plain",
    "left",
    "capped",
    "hidden",
    "outside",
    "prefix",
    "prefix roles",
    "right",
    "late",
    "strided",
    "image",
    "alibi left",
    "alibi bf16",
    "dense rows",
    "dilated",
    "holes",
    "dense whole",
    "dense columns",
    "dense numbers",
}
CHOSEN = [
    (case, DTYPES[i % 2], *SHAPES[(i // 2 + i) % 4]) for i, case in enumerate(flash_worker.CASES) if case not in LATER
]
PRODUCT = [(case, dtype, *shape) for case in flash_worker.CASES for dtype in DTYPES for shape in SHAPES]


@needs_triton
@pytest.mark.parametrize("case, dtype, n_kv_heads, d, e", thinned(CHOSEN, 2))
def test_equals_the_reference_with_its_gradients(
    there: Remote, case: str, dtype: torch.dtype, n_kv_heads: int, d: int, e: int
) -> None:
    errors = there(flash_worker.agreement, case, dtype, n_kv_heads, d, e)
    assert max(errors) < LIMITS[dtype], f"out, lse, gradients of q, k, v, (bias): {errors}"


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("case, dtype, n_kv_heads, d, e", sorted(set(PRODUCT) - set(CHOSEN), key=str))
def test_equals_the_reference_in_every_combination(
    there: Remote, case: str, dtype: torch.dtype, n_kv_heads: int, d: int, e: int
) -> None:
    errors = there(flash_worker.agreement, case, dtype, n_kv_heads, d, e)
    assert max(errors) < LIMITS[dtype], f"out, lse, gradients of q, k, v, (bias): {errors}"


@pytest.mark.slow
@needs_triton
def test_results_are_the_same_bits_every_time(there: Remote) -> None:
    assert there(flash_worker.repeats)
