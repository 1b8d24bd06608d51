"""Bug 1 of those that others shipped: fully masked rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from every import every_backend, leaves
from small import (
    alone,
)

from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.patterns.basic import causal, window


@every_backend
@pytest.mark.parametrize("how", ["pattern", "padding", "segments", "bias"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_bug_01_fully_masked_rows_give_zero(backend: str, how: str, dtype: torch.dtype) -> None:
    """A row that may see nothing gives 0 and no gradient: never NaN, never the mean of V."""
    q, k, v = leaves(dtype=dtype)
    options: dict[str, Any] = {"layout": alone(5), "kv_layout": alone(5)}
    if how == "pattern":  # the first tokens see nothing
        options["pattern"] = causal() & ~window(2)
    elif how == "padding":  # a whole source of padding
        options["kv_layout"] = Layout.from_lengths([0, 3], 5)
    elif how == "segments":
        segments = torch.tensor([[0, 0, 0, 0, 0], [1, 1, 2, 2, 2]])
        options["kv_layout"] = Layout(alone(5).positions.expand(2, -1, -1), segments, one_segment=False)
    else:
        options["bias"] = torch.zeros(5, 5, dtype=dtype).index_fill(0, torch.tensor([0, 3]), float("-inf"))
    hidden = {"pattern": (..., slice(0, 2)), "padding": (0,), "segments": (1,), "bias": (slice(None), [0, 3])}[how]
    hidden = (slice(None), slice(0, 2)) if how == "pattern" else hidden
    out = attend(q, k, v, backend=backend, **options)
    out.float().square().sum().backward()
    assert bool((out[hidden] == 0).all())
    assert float(out.detach().abs().sum()) > 0
    for leaf in (q, k, v):
        assert leaf.grad is not None
        assert bool(leaf.grad.isfinite().all())
    assert q.grad is not None
    assert bool((q.grad[hidden] == 0).all())
