"""Collective operations as NCCL runs them, on one tensor, here on gloo. That they give gradients is tested in
`test_same_steps.py`, on CPUs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.core.ranks import Ranks
from qkv.training.parallel import collectives
from qkv.training.parallel.world import World

pytestmark = pytest.mark.xdist_group("ranks")


def numbers(rank: int) -> Tensor:
    return torch.randn(4, 6, 2, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)


def operate(ranks: Ranks, axis: int) -> tuple[Tensor, Tensor]:
    assert isinstance(ranks, World)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collectives, "is_direct", lambda _: False)
        x = numbers(ranks.rank).transpose(0, 1).contiguous().transpose(0, 1)  # not contiguous
        return collectives.gather(x, ranks, axis), collectives.sum_and_scatter(x, ranks, axis)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gathering_and_scattering_match_their_definitions(axis: int, two: Any) -> None:
    results = two.run(operate, axis)
    every = [numbers(rank) for rank in range(len(results))]
    for rank, (gathered, part) in enumerate(results):
        assert torch.equal(gathered, torch.cat(every, axis))
        torch.testing.assert_close(part, sum(every[1:], every[0]).chunk(len(every), axis)[rank], rtol=1e-14, atol=1e-14)
