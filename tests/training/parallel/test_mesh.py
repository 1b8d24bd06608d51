"""Groups of the ranks of a mesh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from qkv.training.parallel.mesh import Mesh
from qkv.training.parallel.scale import Sizes
from qkv.training.parallel.world import World

pytestmark = pytest.mark.xdist_group("ranks")


@pytest.fixture
def four_as_one() -> Iterator[World]:
    """Rank 1 of four that PyTorch's fake process group stands for."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
    yield World()
    dist.destroy_process_group()


def test_groups_are_connected_when_they_are_made(four_as_one: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL can hang if it connects a group while operations of other groups are under way."""
    connected: list[Any] = []

    def all_reduce(tensor: Tensor, group: Any = None) -> None:
        connected.append((dist.get_process_group_ranks(group), tensor.device.type))

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    mesh = Mesh(four_as_one, Sizes(data=2, tensor=2), torch.device("cpu"))
    mesh.group("tensor")
    mesh.group("data")
    mesh.group("tensor")
    assert connected == [([0, 1], "cpu"), ([1, 3], "cpu")]
