"""Tokens divided over the ranks of an axis: each token is on one rank, with its position."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch

from qkv.core.layout import Layout
from qkv.core.ranks import Alone
from qkv.training.parallel.model_parallel.axis import TokenAxis
from qkv.training.parallel.model_parallel.ring import Order


@pytest.mark.parametrize("order", get_args(Order))
@pytest.mark.parametrize("length", [8, 7])
def test_ranks_have_all_tokens_with_their_positions(order: Order, length: int) -> None:
    x, found = torch.arange(2 * length).view(1, length, 2).float() + 1, dict[int, Any]()
    for rank in range(2):
        ranks: Any = SimpleNamespace(rank=rank, size=2)
        axis = TokenAxis(Layout.full(length), ranks, order)
        own, positions = axis.own(x)[0], axis.layout.positions[0, :, 0]
        assert len(own) == len(positions) == 4
        for row, position in zip(own, positions.tolist(), strict=True):
            if position < 0:
                assert not row.any()  # padding
            else:
                assert torch.equal(row, x[0, position]) and position not in found
                found[position] = rank
    assert sorted(found) == list(range(length))
    assert [found[i] for i in range(4)] == ([0, 0, 1, 1] if order == "zigzag" else [0] * 4)


def test_one_rank_has_everything() -> None:
    axis, x = TokenAxis(Layout.full(5), Alone(), "zigzag"), torch.randn(1, 5, 2)
    assert axis.own(x) is x and axis.gather(x) is x and axis.sum_and_scatter(x) is x
