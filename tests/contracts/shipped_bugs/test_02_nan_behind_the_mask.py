"""Bug 2 of those that others shipped: nan behind the mask."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from axes import PARTIAL
from every import every_backend, leaves
from small import (
    packed,
    padded,
)

from qkv.nn.attention.attend import attend
from qkv.nn.kernels.backends import BACKENDS
from qkv.nn.patterns.basic import causal


@every_backend
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("side", ["left", "right", "holes"])
def test_bug_02_nan_in_padding_does_not_leak(backend: str, poison: float, side: str) -> None:
    """NaN or Inf in a padded key or value changes neither the output nor any gradient of what is real."""
    layout = padded([3, 5], side, 6)
    found = []
    for fill in (0.0, poison):
        q, k, v = leaves(t=6, s=6)
        k, v = (x.detach().masked_fill(~layout.valid[..., None, None], fill).requires_grad_() for x in (k, v))
        out = attend(q, k, v, pattern=causal(), layout=layout, backend=backend)
        out.square().sum().backward()
        found.append([out, q.grad, k.grad, v.grad])
    for clean, poisoned in zip(*found, strict=True):
        assert torch.equal(clean, poisoned)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name not in ("sdpa", *PARTIAL)])
@pytest.mark.parametrize("how", ["pattern", "segments", "bias"])
def test_bug_02_nan_in_masked_tokens_does_not_leak(backend: str, how: str) -> None:
    """A real token that holds NaN reaches those who see it and nobody else, whatever hides it from the others."""
    q, k, v = leaves(1, 6, 6)
    k, v = (x.detach().index_fill(1, torch.tensor([4]), float("nan")).requires_grad_() for x in (k, v))
    options: dict[str, Any] = {"pattern": causal()} if how == "pattern" else {}
    if how == "segments":
        options["layout"] = packed([[4, 2]])
    if how == "bias":
        options["bias"] = (
            torch.zeros(6, 6, dtype=torch.float64).triu(1).masked_fill(torch.ones(6, 6).triu(1) > 0, float("-inf"))
        )
    out = attend(q, k, v, backend=backend, **options)
    assert bool(out[:, :4].isfinite().all())
    assert bool(out[:, 4:].isnan().all())
    out[:, :4].sum().backward()
    assert q.grad is not None
    assert bool(q.grad[:, :4].isfinite().all())
