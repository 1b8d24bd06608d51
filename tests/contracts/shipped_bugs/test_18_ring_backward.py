"""Bug 18 of those that others shipped: ring backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from every import leaves
from small import (
    randn,
    same,
)

from qkv.nn.attention.attend import attend
from qkv.nn.patterns.basic import causal, full, window
from ring_attention import ring


@pytest.mark.parametrize("pattern", [full(), causal(), causal() & window(5), ~causal()])
@pytest.mark.parametrize("shards, order", [(2, "contiguous"), (3, "zigzag")])
def test_bug_18_a_rings_backward_pass_meets_the_keys_of_its_step(pattern: Any, shards: int, order: Any) -> None:
    """Whatever the mask: shares are balanced for a causal one, and right for all."""
    given, grad = leaves(2, 13, 13), randn(2, 13, 4, 8, seed=9)
    found = [
        (out, *torch.autograd.grad(out, given, grad))
        for out in (ring(*given, shards=shards, order=order, pattern=pattern), attend(*given, pattern=pattern))
    ]
    for ours, wanted in zip(*found, strict=True):
        same(ours, wanted)
