"""Bug 3 of those that others shipped: causal alignment."""

from __future__ import annotations

import pytest
import torch
from every import every_backend, leaves
from small import (
    same,
)
from torch.nn import functional as F

from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.patterns.basic import causal


@every_backend
def test_bug_03_causal_alignment_of_unequal_lengths(backend: str) -> None:
    """Three queries and seven keys are not aligned by guessing: it is an error, and layouts say where queries stand."""
    q, k, v = leaves(1, 3, 7)
    with pytest.raises(ValueError, match="layout"):
        attend(q, k, v, pattern=causal(), backend=backend)
    k2, v2 = (x.transpose(1, 2).repeat_interleave(2, 1) for x in (k, v))
    for start in (0, 2, 4):
        out = attend(q, k, v, pattern=causal(), layout=Layout.full(3, start), kv_layout=Layout.full(7), backend=backend)
        seen = torch.arange(7) <= torch.arange(start, start + 3)[:, None]
        same(out, F.scaled_dot_product_attention(q.transpose(1, 2), k2, v2, attn_mask=seen).transpose(1, 2))
