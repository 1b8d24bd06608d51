"""Bug 15 of those that others shipped: score overflow."""

from __future__ import annotations

import pytest
import torch
from every import every_backend
from oracle import attention
from small import (
    randn,
    same,
)

from qkv.nn.attention.attend import attend
from qkv.nn.patterns.basic import causal


@every_backend
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [None, 1.0])
def test_bug_15_large_scores_do_not_overflow(backend: str, dtype: torch.dtype, scale: float | None) -> None:
    """Scores far above fp16's 65504 give the soft-max that fp64 gives, and finite gradients."""
    q, k, v = (
        randn(1, 6, 2, 64, seed=i).mul(size).to(dtype).requires_grad_() for i, size in ((1, 200), (2, 200), (3, 1))
    )
    scores = q.double().transpose(1, 2) @ k.double().permute(0, 2, 3, 1)
    assert float(scores.abs().max()) > 65504
    out = attend(q, k, v, pattern=causal(), scale=scale, backend=backend)
    seen = torch.ones(6, 6, dtype=torch.bool).tril()[None, None].expand(1, 2, -1, -1)
    same(out, attention(*(x.double() for x in (q, k, v)), seen, scale=scale)[0], 1e-2)
    out.float().sum().backward()
    assert all(bool(x.grad.isfinite().all()) for x in (q, k, v) if x.grad is not None)
