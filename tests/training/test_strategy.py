"""The strategy of whole replicas: checksums of copies, sums of gradients and files of rank 0."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from qkv.core.ranks import ALONE
from qkv.training.strategy import Strategy, checksum


def test_one_changed_bit_changes_the_checksum() -> None:
    tensors = {"a": torch.arange(6.0).view(2, 3).t(), "b": torch.tensor([1, 2], dtype=torch.bfloat16)}
    before = checksum(tensors)
    assert before == checksum({name: t.clone() for name, t in tensors.items()})
    tensors["b"].view(torch.int16)[0] ^= 1
    assert checksum(tensors) != before
    nan = torch.tensor([float("nan")])
    assert checksum({"a": nan}) == checksum({"a": nan.clone()}) == 0x7FC00000


def ranks(size: int, **answers: Any) -> Any:
    return SimpleNamespace(rank=answers.pop("rank", 0), size=size, **answers)


def test_a_copy_that_differs_is_named_with_the_rank_that_it_should_equal() -> None:
    model = nn.Linear(2, 2)
    own = checksum(dict(model.named_parameters()))
    for number in (1, 3):  # rank 2 has another part of the model
        told = [(0, own), (0, own), (7, 5), (0, own)]
        told[number] = (0, own + 1)
        with pytest.raises(ValueError, match=f"the weights of rank {number} differ from the weights of rank 0"):
            Strategy(model, ranks(4, gather=lambda value, told=told: told)).check_replicas()
    Strategy(model, ranks(3, gather=lambda value: [(0, own), (0, own), (7, 5)])).check_replicas()
    Strategy(model, ALONE).check_replicas()


def test_gradients_are_summed_also_where_this_rank_has_none() -> None:
    model = nn.Linear(2, 1)
    model.weight.grad = torch.tensor([[1.0, 2.0]])
    model.bias.requires_grad_(True)
    strategy = Strategy(model, ranks(2, sum=lambda gradient: gradient + 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    assert strategy.reduce(optimizer) == [model.weight, model.bias]
    assert model.weight.grad.tolist() == [[11.0, 12.0]]
    assert model.bias.grad is not None and model.bias.grad.tolist() == [10.0]
    assert float(strategy.norm([model.weight, model.bias])) == pytest.approx((121 + 144 + 100) ** 0.5)


def test_rank_0_writes_all_files_and_others_none() -> None:
    files = {"model": {"w": torch.ones(1)}}, {"optimizer": {"m": torch.ones(1)}}
    assert set(Strategy(nn.Linear(1, 1), ALONE).files(*files)) == {"model", "optimizer"}
    assert Strategy(nn.Linear(1, 1), ranks(2, rank=1)).files(*files) == {}
