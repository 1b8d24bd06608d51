"""Random draws are noticed, whatever generator they come from; attention without dropout draws none."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from qkv.testing.random_draws import RandomDraws


def test_draws_are_noticed() -> None:
    with RandomDraws() as draws:
        torch.zeros(3).exponential_(generator=torch.Generator().manual_seed(0))
    assert draws.seen


def test_attention_without_dropout_draws_nothing() -> None:
    x = torch.ones(1, 2, 3, 4)
    with RandomDraws() as draws:
        F.scaled_dot_product_attention(x, x, x)
        F.dropout(x, 0.5, training=False)
    assert not draws.seen
