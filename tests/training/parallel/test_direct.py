"""Transfers without copies give what the collective operations are defined as."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.core.ranks import Ranks
from qkv.training.parallel.direct import DirectGather, DirectScatter, all_gather, reduce, reduce_scatter

pytestmark = pytest.mark.xdist_group("ranks")
SHAPES = ((3,), (2, 5), (70_000,))


def numbers(rank: int, part: int, shape: tuple[int, ...]) -> Tensor:
    """What a rank has for a part, the same wherever it is asked for."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(100 * rank + part), dtype=torch.float64)


def operate(ranks: Ranks, shape: tuple[int, ...]) -> dict[str, Tensor]:
    group: Any = torch.distributed.group.WORLD
    whole = torch.zeros(ranks.size, *shape, dtype=torch.float64)
    whole[ranks.rank] = numbers(ranks.rank, 0, shape)
    gathered = whole.clone().flatten()
    all_gather(whole.unbind(), group).wait()
    DirectGather()(gathered, gathered, group)
    parts = torch.stack([numbers(ranks.rank, part, shape) for part in range(ranks.size)])
    part, scattered = torch.empty(shape, dtype=torch.float64), torch.empty(parts[0].numel(), dtype=torch.float64)
    reduce_scatter(parts.unbind(), group, part)
    DirectScatter()(scattered, parts.flatten(), group, torch.distributed.ReduceOp.SUM)
    works = [reduce(owner, tensor, group) for owner, tensor in enumerate(parts.unbind())]  # several under way
    for work in works:
        work.wait()
    return {"gathered": whole, "flat": gathered, "part": part, "scattered": scattered, "owned": parts[ranks.rank]}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("pool", ["two", pytest.param("four", marks=pytest.mark.slow)])
def test_transfers_match_their_definitions(pool: str, shape: tuple[int, ...], request: pytest.FixtureRequest) -> None:
    results = request.getfixturevalue(pool).run(operate, shape)
    for mine, found in enumerate(results):
        whole = torch.stack([numbers(rank, 0, shape) for rank in range(len(results))])
        total = sum(numbers(rank, mine, shape) for rank in range(len(results)))
        assert torch.equal(found["gathered"], whole) and torch.equal(found["flat"], whole.flatten())
        for name in ("part", "scattered", "owned"):
            torch.testing.assert_close(found[name].view(shape), total, rtol=1e-14, atol=1e-14)
