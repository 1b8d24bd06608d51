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


def numbers(heads: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(heads)
    return [torch.randn(2, T, n, 4, generator=generator, dtype=torch.float64) for n in (heads, 2, 2)]


def attended(ranks: Ranks, method: ContextAttention, heads: int, softcap: float | None) -> Tensor:
    axis = TokenAxis(LAYOUT, ranks, "zigzag")
    q, k, v = (axis.own(x.flatten(2)).unflatten(2, x.shape[2:]) for x in numbers(heads))
    options = {"pattern": causal(), "softcap": softcap}
    out = attention(axis, method, q, k, v, layout=axis.layout, kv_layout=axis.layout, **options)
    return axis.gather(out.flatten(2))


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("method", get_args(ContextAttention))
def test_ranks_attend_as_one(two: Any, method: ContextAttention, softcap: float | None) -> None:
    q, k, v = numbers(4)
    expected = attend(q, k, v, pattern=causal(), layout=LAYOUT, kv_layout=LAYOUT, softcap=softcap).flatten(2)
    for found in two.run(attended, method, 4, softcap):
        torch.testing.assert_close(found[LAYOUT.valid], expected[LAYOUT.valid], rtol=1e-9, atol=1e-9)


def test_heads_that_ranks_do_not_divide_are_gathered(two: Any) -> None:
    """Three heads on two ranks, which all-to-all can't exchange."""

    q, k, v = odd()
    expected = attend(q, k, v, pattern=causal(), layout=LAYOUT, kv_layout=LAYOUT).flatten(2)
    for found in two.run(attended_odd):
        torch.testing.assert_close(found[LAYOUT.valid], expected[LAYOUT.valid], rtol=1e-9, atol=1e-9)


def odd() -> list[Tensor]:
    return list(torch.randn(3, 2, T, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64))


def attended_odd(ranks: Ranks) -> Tensor:
    axis = TokenAxis(LAYOUT, ranks, "zigzag")
    q, k, v = (axis.own(x.flatten(2)).unflatten(2, x.shape[2:]) for x in odd())
    out = attention(axis, "all-to-all", q, k, v, layout=axis.layout, kv_layout=axis.layout, pattern=causal())
    return axis.gather(out.flatten(2))
