"""The loss over a divided vocabulary. That several ranks compute what one does is tested in `test_same_steps.py`."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from qkv.nn.layers import losses
from qkv.nn.layers.losses import linear_cross_entropy
from qkv.training.parallel.model_parallel.division import ParameterSlice, shares
from qkv.training.parallel.model_parallel.vocabulary import Vocabulary
from qkv.training.parallel.world import World

pytestmark = pytest.mark.xdist_group("ranks")
V, M = 11, 6


@pytest.fixture
def whole() -> Iterator[Vocabulary]:
    """The vocabulary of the only rank of a process group."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield Vocabulary(World(), ParameterSlice("tensor", 0, 0, V, V))
    dist.destroy_process_group()


@pytest.mark.parametrize("trained", [{"hidden"}, {"weight"}, {"hidden", "bias"}, {"hidden", "weight", "bias"}])
def test_only_what_is_trained_gets_a_gradient(whole: Vocabulary, trained: set[str]) -> None:
    leaves = {"hidden": torch.randn(2, 5, M), "weight": torch.randn(V, M), "bias": torch.randn(V)}
    labels = torch.randint(V, (2, 5))
    asked = [leaf.requires_grad_() for name, leaf in leaves.items() if name in trained]
    exact = linear_cross_entropy(*leaves.values(), labels, 0.1).loss  # type: ignore[arg-type, call-arg, misc]
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = whole.loss(*leaves.values(), labels, 0.1).loss  # type: ignore[arg-type, call-arg, misc]
    torch.testing.assert_close(torch.autograd.grad(loss, asked), torch.autograd.grad(exact, asked))
    assert len(saved) == len(trained), "the others are not kept for the backward pass"


def test_ranks_with_longer_and_shorter_parts_sum_the_same_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise NCCL waits for ever."""
    monkeypatch.setattr(losses, "CHUNK_BYTES", 120)  # 6 rows of 5 fp32 logits, or 5 rows of 6
    summed: list[list[torch.Size]] = []

    def record(value: Tensor, *_: object, **__: object) -> Tensor:
        summed[-1].append(value.shape)
        return value

    monkeypatch.setattr(dist, "all_reduce", record)
    for rank in range(2):
        start, length = shares(V, 1, 2)[rank]
        summed.append([])
        ranks: Any = SimpleNamespace(rank=rank, size=2, group=None, sum=record)
        part = ParameterSlice("tensor", 0, start, length, V)
        Vocabulary(ranks, part).loss(torch.randn(3, 5, M), torch.randn(length, M), None, torch.randint(V, (3, 5)))
    assert summed[0] == summed[1] and len(summed[0]) == 6
