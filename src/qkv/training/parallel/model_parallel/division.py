"""`Division`: which parameters of a model are divided over ranks, and the parts that this rank has of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...checkpoints.pieces import TensorPiece
from ...optimizers.parameter_groups import ELSEWHERE
from ..mesh import Mesh
from ..scale import Axis
from ..world import World
from .pipeline import Pipeline

StandIns = dict[nn.Parameter, nn.Parameter]
"""Parts of parameters, with parameters of the whole shape that take their places."""


@dataclass(frozen=True)
class ParameterSlice:
    """The slice that this rank has of a parameter: `length` of the `whole` from `start` on, along dimension `dim`.

    axis: the axis of the mesh over which the parameter is divided. unit: how many rows stay together. copies: how many
    consecutive ranks have the same slice, if there are fewer units than ranks.
    """

    axis: Axis
    dim: int
    start: int
    length: int
    whole: int
    unit: int = 1
    copies: int = 1

    @classmethod
    def of(cls, mesh: Mesh, axis: Axis, dim: int, whole: int, unit: int = 1, copies: int = 1) -> ParameterSlice:
        """An equal share, in units of rows that stay together (a head's)."""
        start, length = shares(whole, unit, mesh.size(axis) // copies)[mesh.index(axis) // copies]
        return cls(axis, dim, start, length, whole, unit, copies)

    def places(self, ranks: int) -> list[tuple[int, int]]:
        """The start and length of the part of every rank of the axis."""
        each = shares(self.whole, self.unit, ranks // self.copies)
        return [each[rank // self.copies] for rank in range(ranks)]

    def piece(self, shape: torch.Size) -> TensorPiece:
        """Where a tensor of this shape is in the whole one."""
        start, whole = [0] * len(shape), list(shape)
        start[self.dim], whole[self.dim] = self.start, self.whole
        return TensorPiece(tuple(start), tuple(whole))


def shares(whole: int, unit: int, ranks: int) -> list[tuple[int, int]]:
    """The start and length of each rank's share of `whole` rows, of which `unit` stay together."""
    edges = [unit * (whole // unit * n // ranks) for n in range(ranks + 1)]
    return [(start, stop - start) for start, stop in itertools.pairwise(edges)]


@dataclass
class Division:
    """The divided parameters of a model, by name, and how to undo the division for an evaluation.

    homes:      the stage of a pipeline that has a parameter or buffer, if only one stage has it.
    everywhere: the names of parameters that every stage has, as several use them.
    """

    model: nn.Module
    mesh: Mesh
    parts: dict[str, ParameterSlice] = field(default_factory=dict)
    homes: dict[str, int] = field(default_factory=dict)
    everywhere: set[str] = field(default_factory=set)
    pipeline: Pipeline | None = None
    _switches: list[Callable[[bool], None]] = field(default_factory=list)
    _kept: dict[str, nn.Parameter] = field(default_factory=dict)

    def divide(self, module: nn.Module, name: str, part: ParameterSlice) -> None:
        """Keep this rank's part of a module's parameter alone, also if others share it."""
        parameter = getattr(module, name)
        own = nn.Parameter(
            parameter.detach().narrow(part.dim, part.start, part.length).clone(), parameter.requires_grad
        )
        for path, shared in list(self.model.named_parameters(remove_duplicate=False)):
            if shared is parameter:
                self.set(path, own)
                self.parts[path] = part

    def switch(self, divided: nn.Module, name: str, value: object) -> None:
        """Set an attribute of a module, which has its former value while the model is whole."""
        former = {**divided._buffers, **vars(divided)}.get(name, _MISSING)

        def turn(whole: bool) -> None:
            chosen = former if whole else value
            if chosen is _MISSING:
                vars(divided).pop(name, None)
            else:
                setattr(divided, name, chosen)

        turn(False)
        self._switches.append(turn)

    def place(self, homes: Mapping[str, int]) -> None:
        """Leave out the parameters and buffers that another stage of the pipeline has."""
        self.homes = dict(homes)
        others = [path for path in homes if not self.has(path)]
        names = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        setattr(self.model, ELSEWHERE, frozenset(names.intersection(others)))
        for path in others:
            self._remove(path)

    def has(self, path: str) -> bool:
        """Whether this stage has a parameter or buffer, or the state `<parameter>/<state>` of one."""
        stage = self.mesh.index("pipeline")
        return self.homes.get(path, self.homes.get(path.rpartition("/")[0], stage)) == stage

    @property
    def axes(self) -> set[Axis]:
        """The axes of the mesh over which parameters are divided."""
        stages: set[Axis] = {"pipeline"} if self.homes else set()
        return stages | {part.axis for part in self.parts.values()}

    def part_of(self, path: str) -> ParameterSlice | None:
        """The part of a parameter, or of a state `<parameter>/<state>` like it; None if it is whole."""
        return self.parts.get(path) or self.parts.get(path.rpartition("/")[0])

    def copies_of(self, name: str) -> int:
        """How many ranks of the axis over which a parameter is divided have the same part of it."""
        return self.parts[name].copies if name in self.parts else 1

    def axes_of(self, name: str) -> tuple[Axis, ...]:
        """The axes over which a parameter is divided."""
        return (self.parts[name].axis,) if name in self.parts else ()

    def whole_size(self, name: str, own: Tensor) -> int:
        """How many numbers a parameter has on all ranks together."""
        part = self.parts.get(name)
        return own.numel() if part is None else own.numel() // part.length * part.whole

    @torch.no_grad()
    def gather(self) -> None:
        """Make every parameter whole on every rank."""
        whole: dict[nn.Parameter, nn.Parameter] = {}
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        for path, part in self.parts.items():
            if path not in parameters:
                continue
            own = parameters[path]
            if own not in whole:
                whole[own] = nn.Parameter(self._whole(own.detach(), part), own.requires_grad)
            self._kept[path] = own
            self.set(path, whole[own])
        for turn in self._switches:
            turn(True)
        if self.homes:
            self._fetch()

    def scatter(self) -> None:
        """Undo `gather`."""
        for path in self.homes:
            if not self.has(path):
                self._remove(path)
        for path, own in self._kept.items():
            self.set(path, own)
        self._kept = {}
        for turn in self._switches:
            turn(False)

    @contextmanager
    def with_stand_ins(self, device: torch.device, only: Set[nn.Parameter] | None = None) -> Iterator[StandIns]:
        """Inside the block, the model has a parameter of the whole shape in place of each divided one, or of the ones in
        `only`. It has no memory. Gives the parts with their stand-ins."""
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        paths = [path for path in self.parts if path in parameters]
        stand_ins: StandIns = {}
        for path in paths:
            own, part = parameters[path], self.parts[path]
            if own not in stand_ins and (only is None or own in only):
                shape = [part.whole if axis == part.dim else n for axis, n in enumerate(own.shape)]
                stand_ins[own] = nn.Parameter(torch.empty(shape, dtype=own.dtype, device=device), own.requires_grad)
                stand_ins[own].untyped_storage().resize_(0)
        for path in paths:
            self.set(path, stand_ins.get(parameters[path], parameters[path]))
        try:
            yield stand_ins
        finally:
            for path in paths:
                self.set(path, parameters[path])

    def _whole(self, own: Tensor, part: ParameterSlice) -> Tensor:
        """The parts of all ranks as one tensor. They differ in size if the ranks don't divide it."""
        ranks = self.mesh.group(part.axis)
        assert isinstance(ranks, World)
        lengths = [length for _, length in part.places(ranks.size)]
        padded = own.movedim(part.dim, 0)
        padded = torch.cat([padded, padded.new_zeros(max(lengths) - part.length, *padded.shape[1:])]).contiguous()
        parts = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(parts, padded, group=ranks.group)
        own_ones = [p[:n] for p, n in zip(parts, lengths, strict=True)][:: part.copies]
        return torch.cat(own_ones).movedim(0, part.dim).contiguous()

    def _fetch(self) -> None:
        """Get the parameters and buffers of the other stages."""
        ranks = self.mesh.group("pipeline")
        assert isinstance(ranks, World)
        own = {path: getattr(*self._find(path)) for path in self.homes if self.has(path)}
        kinds: dict[str, tuple[Any, ...]] = {}
        for some in ranks.gather(
            {path: (x.shape, x.dtype, isinstance(x, nn.Parameter), x.requires_grad) for path, x in own.items()}
        ):
            kinds |= some
        for path, home in self.homes.items():
            shape, dtype, trained, gradient = kinds[path]
            mine = own.get(path)
            tensor = torch.empty(shape, dtype=dtype, device=self.mesh.device) if mine is None else mine.detach()
            tensor = tensor.contiguous()
            dist.broadcast(tensor, group=ranks.group, group_src=home)
            if mine is None:
                setattr(*self._find(path), nn.Parameter(tensor, gradient) if trained else tensor)

    def _remove(self, path: str) -> None:
        module, name = self._find(path)
        setattr(module, name, None)

    def set(self, path: str, parameter: nn.Parameter) -> None:
        """Put a parameter in the place of the one at a path."""
        module, name = self._find(path)
        setattr(module, name, parameter)

    def _find(self, path: str) -> tuple[nn.Module, str]:
        module, _, name = path.rpartition(".")
        return self.model.get_submodule(module), name


_MISSING = object()
