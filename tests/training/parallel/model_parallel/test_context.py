"""Attention with keys on several ranks: what one rank computes, by every method."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from qkv.core.layout import Layout
from qkv.core.ranks import Ranks
from qkv.nn.attention.attend import attend
from qkv.nn.cost.plan.rules import ContextAttention
from qkv.nn.patterns.basic import causal
from qkv.training.parallel.model_parallel.axis import TokenAxis
from qkv.training.parallel.model_parallel.context import attention

pytestmark = pytest.mark.xdist_group("ranks")
T = 12
LAYOUT = Layout.from_mask(torch.tensor([[1] * T, [1] * (T - 3) + [0] * 3]))


def numbers(heads: int, kv_heads: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(heads)
    return [torch.randn(2, T, n, 4, generator=generator, dtype=torch.float64) for n in (heads, kv_heads, kv_heads)]


def attended(ranks: Ranks, method: ContextAttention, heads: int, kv_heads: int, softcap: float | None) -> Tensor:
    axis = TokenAxis(LAYOUT, ranks, "zigzag")
    q, k, v = (axis.own(x.flatten(2)).unflatten(2, x.shape[2:]) for x in numbers(heads, kv_heads))
    options = {"pattern": causal(), "softcap": softcap}
    out = attention(axis, method, q, k, v, layout=axis.layout, kv_layout=axis.layout, **options)
    return axis.gather(out.flatten(2))


def compare(two: Any, method: ContextAttention, heads: int, kv_heads: int, softcap: float | None = None) -> None:
    q, k, v = numbers(heads, kv_heads)
    expected = attend(q, k, v, pattern=causal(), layout=LAYOUT, kv_layout=LAYOUT, softcap=softcap).flatten(2)
    for found in two.run(attended, method, heads, kv_heads, softcap):
        torch.testing.assert_close(found[LAYOUT.valid], expected[LAYOUT.valid], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("method", get_args(ContextAttention))
def test_ranks_attend_as_one(two: Any, method: ContextAttention, softcap: float | None) -> None:
    compare(two, method, 4, 2, softcap)


def test_heads_that_ranks_do_not_divide_are_gathered(two: Any) -> None:
    """Three heads on two ranks, which all-to-all can't exchange."""
    compare(two, "all-to-all", 3, 3)
