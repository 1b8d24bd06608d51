"""Decoding from pages equals attention over the same keys and values."""

from __future__ import annotations

from typing import Any

import flash_worker
import pytest
import torch
from flash_remote import LIMITS, Remote, needs_triton


@needs_triton
@pytest.mark.parametrize(
    "tokens, splits, dtype, options",
    [
        (1, 1, torch.float32, {}),
        (1, 3, torch.float16, {}),
        (5, 2, torch.float32, {"softcap": 2.0}),
        (3, 2, torch.float32, {"window": 7}),
    ],
)
def test_decoding_from_pages(there: Remote, tokens: int, splits: int, dtype: torch.dtype, options: Any) -> None:
    errors = there(flash_worker.paged, tokens, splits, dtype, options)
    assert max(errors) < LIMITS[dtype], f"out, lse: {errors}"
