"""`Mesh`: the ranks of a training arranged in axes, with a process group for every set of axes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ...core.ranks import ALONE, Ranks
from .scale import AXES, STAGE_AXES, Axis, Sizes
from .world import World


class Mesh:
    """Ranks in a grid of `sizes`. Neighbors in the last axis have consecutive numbers, so they are on one machine.

    A group of axes holds the ranks that differ from this one in these axes only. Groups are made when they are first asked
    for, which every rank has to do in the same order. They are connected at once, since NCCL would do that in a group's
    first operation, and can hang there while operations of other groups are under way. On GPUs, groups of some ranks have
    NCCL only; the group of all ranks has gloo too.
    """

    def __init__(self, ranks: Ranks, sizes: Sizes, device: torch.device) -> None:
        self.ranks, self.sizes, self.device = ranks, sizes, device
        self.grid = torch.arange(ranks.size).view(*sizes)
        (place,) = (self.grid == ranks.rank).nonzero().tolist()
        self.place: dict[Axis, int] = dict(zip(AXES, place, strict=True))
        self._groups: dict[tuple[Axis, ...] | tuple[Axis, int], Ranks] = {}

    @property
    def _backend(self) -> str | None:
        return "nccl" if self.device.type == "cuda" else None  # None is the backend of all ranks

    def size(self, *axes: Axis) -> int:
        """How many ranks a group of axes has."""
        return self.sizes.of(*axes)

    def index(self, *axes: Axis) -> int:
        """This rank's index among the ranks of a group of axes, in the order in which the axes are given."""
        index = 0
        for axis in axes:
            index = index * self.size(axis) + self.place[axis]
        return index

    def indices(self, *axes: Axis) -> list[int]:
        """`index` of every rank."""
        index = torch.zeros_like(self.grid)
        for axis in axes:
            shape = [-1 if other == axis else 1 for other in AXES]
            index = index * self.size(axis) + torch.arange(self.size(axis)).view(shape)
        return index.flatten().tolist()

    def group(self, *axes: Axis) -> Ranks:
        """The ranks that differ in these axes only, in the order of their numbers."""
        wanted = tuple(axis for axis in AXES if axis in axes and self.size(axis) > 1)
        if not wanted:
            return ALONE
        if self.size(*wanted) == self.ranks.size:
            return self.ranks
        if wanted not in self._groups:
            self._groups[wanted] = self._new(wanted, self.size(*wanted))
        return self._groups[wanted]

    def neighbors(self, axis: Axis, size: int) -> Ranks:
        """The group of `size` consecutive ranks along an axis that has this rank. `size` has to divide the axis."""
        if size in (1, self.size(axis)):
            return ALONE if size == 1 else self.group(axis)
        if (axis, size) not in self._groups:
            self._groups[axis, size] = self._new((axis,), size)
        return self._groups[axis, size]

    def _new(self, axes: tuple[Axis, ...], size: int) -> Ranks:
        """Make the groups of `size` consecutive ranks along the axes, and return this rank's."""
        last = [AXES.index(axis) for axis in axes]
        first = [i for i in range(len(AXES)) if i not in last]
        own: Ranks = ALONE
        for members in self.grid.permute(*first, *last).reshape(-1, size).tolist():
            group = dist.new_group(members, timeout=World.timeout, backend=self._backend)
            if self.ranks.rank in members:
                own = World(group)
        own.sum(torch.zeros(1, device=self.device))  # NCCL connects a group now, while nothing else is under way
        return own

    def make(self, groups: Iterable[tuple[Axis, ...]]) -> None:
        """Make groups of several sets of axes. Each rank may want others, as stages of a pipeline do."""
        for axes in sorted({axes for wanted in self.ranks.gather(sorted(set(groups))) for axes in wanted}):
            self.group(*axes)

    @property
    def stage(self) -> Ranks:
        """The ranks that have the same layers of the model: all that differ in no pipeline stage."""
        return self.group(*STAGE_AXES)

    def device_mesh(self, *axes: Axis) -> DeviceMesh:
        """PyTorch's mesh of these axes, with the groups of this one."""
        groups = [_process_group(self.group(axis)) for axis in axes]
        if len(groups) == 1:
            return DeviceMesh.from_group(groups[0], self.device.type, mesh_dim_names=axes)
        place = tuple(slice(None) if axis in axes else self.place[axis] for axis in AXES)
        return DeviceMesh.from_group(groups, self.device.type, self.grid[place], mesh_dim_names=axes)


def _process_group(ranks: Ranks) -> dist.ProcessGroup:
    assert isinstance(ranks, World)
    whole = dist.group.WORLD
    assert whole is not None
    return whole if ranks.group is None else ranks.group
