"""`Division`: which parameters of a model are divided over ranks, and the parts that this rank has of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...training.checkpoints.pieces import Piece
from ..mesh import Mesh
from ..scale import Axis
from ..world import World


@dataclass(frozen=True)
class Part:
    """The slice that this rank has of a parameter: `length` of the `whole` from `start` on, along dimension `dim`.

    axis: the axis of the mesh over which the parameter is divided.
    """

    axis: Axis
    dim: int
    start: int
    length: int
    whole: int

    @classmethod
    def of(cls, mesh: Mesh, axis: Axis, dim: int, whole: int, unit: int = 1) -> Part:
        """An equal share, in units of rows that stay together (a head's)."""
        number, ranks, units = mesh.index(axis), mesh.size(axis), whole // unit
        start, stop = (unit * (units * n // ranks) for n in (number, number + 1))
        return cls(axis, dim, start, stop - start, whole)

    def piece(self, shape: torch.Size) -> Piece:
        """Where a tensor of this shape is in the whole one."""
        start, whole = [0] * len(shape), list(shape)
        start[self.dim], whole[self.dim] = self.start, self.whole
        return Piece(tuple(start), tuple(whole))


@dataclass
class Division:
    """The divided parameters of a model, by name, and how to undo the division for an evaluation."""

    model: nn.Module
    mesh: Mesh
    parts: dict[str, Part] = field(default_factory=dict)
    _switches: list[Callable[[bool], None]] = field(default_factory=list)
    _kept: dict[str, nn.Parameter] = field(default_factory=dict)

    def divide(self, module: nn.Module, name: str, part: Part) -> None:
        """Keep this rank's part of a module's parameter alone, also where others share it."""
        parameter = getattr(module, name)
        own = nn.Parameter(
            parameter.detach().narrow(part.dim, part.start, part.length).clone(), parameter.requires_grad
        )
        for path, shared in list(self.model.named_parameters(remove_duplicate=False)):
            if shared is parameter:
                self._set(path, own)
                self.parts[path] = part

    def switch(self, divided: nn.Module, name: str, value: Any) -> None:
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

    @property
    def axes(self) -> set[Axis]:
        """The axes of the mesh over which parameters are divided."""
        return {part.axis for part in self.parts.values()}

    def part_of(self, path: str) -> Part | None:
        """The part of a parameter, or of a state `<parameter>/<state>` like it; None where it is whole."""
        return self.parts.get(path) or self.parts.get(path.rpartition("/")[0])

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
            own = parameters[path]
            if own not in whole:
                whole[own] = nn.Parameter(self._whole(own.detach(), part), own.requires_grad)
            self._kept[path] = own
            self._set(path, whole[own])
        for turn in self._switches:
            turn(True)

    def scatter(self) -> None:
        """Undo `gather`."""
        for path, own in self._kept.items():
            self._set(path, own)
        self._kept = {}
        for turn in self._switches:
            turn(False)

    def _whole(self, own: Tensor, part: Part) -> Tensor:
        """The parts of all ranks as one tensor. They differ in size where the ranks don't divide it."""
        ranks = self.mesh.group(part.axis)
        assert isinstance(ranks, World)
        lengths = ranks.gather(part.length)
        padded = own.movedim(part.dim, 0)
        padded = torch.cat([padded, padded.new_zeros(max(lengths) - part.length, *padded.shape[1:])]).contiguous()
        parts = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(parts, padded, group=ranks.group)
        return torch.cat([p[:n] for p, n in zip(parts, lengths, strict=True)]).movedim(0, part.dim).contiguous()

    def _set(self, path: str, parameter: nn.Parameter) -> None:
        module, _, name = path.rpartition(".")
        setattr(self.model.get_submodule(module), name, parameter)


_MISSING = object()
