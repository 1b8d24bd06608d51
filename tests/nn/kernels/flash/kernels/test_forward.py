"""The forward kernel takes heads of any width and inputs with any strides."""

from __future__ import annotations

import flash_worker
import pytest
import torch
from fast_subset import fast
from flash_remote import LIMITS, Remote, needs_triton


@needs_triton
@pytest.mark.parametrize("width", [*(pytest.param(n, marks=pytest.mark.slow) for n in (80, 96, 128, 200)), 256])
def test_heads_of_every_width_match_the_reference(there: Remote, width: int) -> None:
    errors = there(flash_worker.agreement, "causal", torch.float32, 2, width, width)
    assert max(errors) < LIMITS[torch.float32], f"{errors}"


@needs_triton
@pytest.mark.parametrize("kind", fast(["slices", "transposed", "gaps"], "gaps"))
def test_inputs_may_lie_in_memory_as_they_like(there: Remote, kind: str) -> None:
    errors = there(flash_worker.strided_inputs, kind)
    assert max(errors) < LIMITS[torch.float32], f"{errors}"


@needs_triton
def test_empty_inputs_give_empty_outputs(there: Remote) -> None:
    found = there(flash_worker.nothing)
    assert all(found.values()), found
