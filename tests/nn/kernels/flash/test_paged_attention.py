"""Paged attention refuses pages that don't fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qkv.nn.kernels import flash


@pytest.mark.parametrize(
    "shapes, message",
    [
        (((4, 2, 16), (3, 8, 2, 16), (3, 8, 2, 16), (1, 3), (1,)), r"q is \(batch, tokens, heads, width\)"),
        (((1, 1, 4, 16), (3, 8, 3, 16), (3, 8, 3, 16), (1, 3), (1,)), "don't fit together"),
        (((2, 1, 4, 16), (3, 8, 2, 16), (3, 8, 2, 16), (1, 3), (2,)), "a table is"),
    ],
)
def test_pages_that_do_not_fit(shapes: Any, message: str) -> None:
    tensors = [torch.zeros(shape, dtype=torch.int32 if len(shape) < 3 else None) for shape in shapes]
    with pytest.raises(ValueError, match=message):
        flash.paged(*tensors)
