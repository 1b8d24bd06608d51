"""Places of ranks in a mesh: neighbors in the last axis have consecutive numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from qkv.core.ranks import ALONE
from qkv.training.parallel.mesh import Mesh
from qkv.training.parallel.scale import AXES, Sizes


def mesh(rank: int, **sizes: int) -> Mesh:
    every = Sizes(*(sizes.get(axis, 1) for axis in AXES))
    count = every.of(*AXES)
    ranks: Any = SimpleNamespace(rank=rank, size=count)
    return Mesh(ranks, every, torch.device("cpu"))


def test_a_rank_is_counted_axis_by_axis() -> None:
    """Rank 11 of 2 × 3 × 2 is at (1, 2, 1), rank 4 at (0, 2, 0)."""
    last, other = mesh(11, pipeline=2, data=3, tensor=2), mesh(4, pipeline=2, data=3, tensor=2)
    assert [last.index(axis) for axis in ("pipeline", "data", "tensor")] == [1, 2, 1]
    assert [other.index(axis) for axis in ("pipeline", "data", "tensor")] == [0, 2, 0]
    assert (
        last.index("data", "tensor") == 5 and last.index("tensor", "data") == 5 and other.index("tensor", "data") == 2
    )
    assert last.size("pipeline", "data") == 6 and last.size("shard") == 1


def test_indices_are_those_of_each_rank() -> None:
    made = [mesh(rank, pipeline=2, data=3, tensor=2) for rank in range(12)]
    for axes in (("tensor",), ("data", "tensor"), ("tensor", "pipeline"), ()):
        assert made[0].indices(*axes) == [one.index(*axes) for one in made]


def test_a_group_of_one_is_alone_and_that_of_all_is_given() -> None:
    made = mesh(1, data=2)
    assert made.group("tensor") is ALONE and made.group("data", "tensor") is made.ranks
    assert made.neighbors("data", 1) is ALONE and made.neighbors("data", 2) is made.ranks
