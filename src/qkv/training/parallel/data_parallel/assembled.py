"""`Assembled`: updates of whole parameters, for optimizers that need them, if ranks have parts of these parameters.

Muon makes whole matrices orthogonal, Adafactor keeps means of rows and columns, and 8-bit AdamW shares scales within blocks
of numbers. Each parameter that tensor or expert parallelism divides has an owner among the ranks of that axis, which keeps
the state of the optimizer for it. In a step the owner gathers the parts of the weights and gradients, updates the whole
parameter, and scatters the parts of the result. For P numbers, 3 P travel, and each of n ranks needs room for about 2 P/n
numbers during the update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ....core.batch import to_device
from ...optimizers.base import Optimizer
from ...optimizers.state import Eager
from ..model_parallel.division import Division, ParameterSlice, StandIns
from ..world import World

_OWN = ("params", "param_names")  # entries of groups that are not shared


class Assembled(Eager):
    """An optimizer of a rank's parts of parameters.

    inner:    updates the parameters that this rank owns: the parameters in `whole_of` as wholes.
    whole_of: by the part of each assembled parameter, the parameter of the whole shape, which has memory in a step only.
    owner_of: by the name of each assembled parameter, the rank of its axis that owns it.

    Parts that other ranks own are in the last group.
    """

    def __init__(
        self, inner: torch.optim.Optimizer, whole_of: StandIns, owner_of: Mapping[str, int], division: Division
    ) -> None:
        self.inner, self.whole_of, self.owner_of, self.division = inner, whole_of, owner_of, division
        own_of: dict[Tensor, nn.Parameter] = {whole: own for own, whole in whole_of.items()}
        groups = [_shared(group, own_of) for group in inner.param_groups]
        here = {p for group in groups for _, p in group["params"]}
        self.name_of = {own: name for name, own in division.model.named_parameters() if own in whole_of}
        others = [(self.name_of[own], own) for own in whole_of if own not in here]
        super().__init__([*groups, {**_group(others), "lr": 0.0}], {})
        self.state.update({own_of.get(p, p): state for p, state in inner.state.items()})

    def owns(self, name: str) -> bool:
        """Whether this rank updates an assembled parameter."""
        return self.owner_of[name] == _index(self.division, name)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        used = self._with_gradients([*self.whole_of])
        for own in self.whole_of:
            self._gather(own, used)
        for group, inner in zip(self.param_groups, self.inner.param_groups, strict=False):
            inner.update({key: value for key, value in group.items() if key not in _OWN})
        self.inner.step()
        for own in self.whole_of:
            self._scatter(own)
        return loss

    def _with_gradients(self, mine: list[nn.Parameter]) -> set[nn.Parameter]:
        """The parameters that have a gradient, on any rank that has a part of them. Waits for the device only if this rank
        has none for some."""
        used = {own for own in mine if own.grad is not None}
        for axis in sorted({self.division.parts[self.name_of[own]].axis for own in mine}):
            some = [own for own in mine if self.division.parts[self.name_of[own]].axis == axis]
            flags = torch.tensor([own in used for own in some], dtype=torch.int32)
            flags = self.division.mesh.group(axis).sum(to_device(flags, self.division.mesh.device))
            if not used.issuperset(some):
                used |= {own for own, ranks in zip(some, flags.tolist(), strict=True) if ranks}
        return used

    def _place(self, own: nn.Parameter) -> tuple[ParameterSlice, World, int]:
        part = self.division.parts[self.name_of[own]]
        ranks = self.division.mesh.group(part.axis)
        assert isinstance(ranks, World)
        return part, ranks, self.owner_of[self.name_of[own]]

    def _gather(self, own: nn.Parameter, used: Set[nn.Parameter]) -> None:
        """Make the whole weights and gradient at the owner; no gradient of a parameter that was not used."""
        part, ranks, owner = self._place(own)
        gradient = torch.zeros_like(own) if own.grad is None else own.grad
        for i, x in enumerate((own.detach(), gradient)):
            parts = _empty(own, part, ranks) if ranks.rank == owner else None
            dist.gather(_padded(x, part, ranks), parts, group=ranks.group, group_dst=owner)
            if parts is not None:
                whole = self.whole_of[own]
                storage = whole.untyped_storage()
                storage.resize_(whole.numel() * whole.element_size())
                if i:
                    whole.grad = torch.empty_like(whole)
                for piece, (start, length) in zip(parts, part.places(ranks.size), strict=True):
                    target = whole.grad if i else whole
                    assert target is not None
                    target.narrow(part.dim, start, length).copy_(piece[:length].movedim(0, part.dim))
        if own not in used and ranks.rank == owner:
            self.whole_of[own].grad = None

    def _scatter(self, own: nn.Parameter) -> None:
        """Take this rank's part of the updated weights."""
        part, ranks, owner = self._place(own)
        received, parts = _empty(own, part, ranks)[0], None
        if ranks.rank == owner:
            whole = self.whole_of[own]
            parts = _empty(own, part, ranks)
            for piece, (start, length) in zip(parts, part.places(ranks.size), strict=True):
                piece[:length].copy_(whole.detach().narrow(part.dim, start, length).movedim(part.dim, 0))
            whole.grad = None
            whole.untyped_storage().resize_(0)
        dist.scatter(received, parts, group=ranks.group, group_src=owner)
        own.copy_(received[: part.length].movedim(0, part.dim))


def built(spec: Optimizer, model: nn.Module, division: Division, mine: Set[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer of a divided model: of this rank's parts if they can be updated by themselves, else `Assembled`.

    mine: the parts that the ranks which differ in the axes of the parts update.
    """
    with division.with_stand_ins(torch.device("meta")) as of_all:
        cuts = {whole: division.parts[name].dim for name, whole in _named(model, of_all) if whole.requires_grad}
        needed = spec.inseparable(model, cuts)
    if not needed:
        return spec.build(model, mine)
    only = {own for own, whole in of_all.items() if whole in needed}
    with division.with_stand_ins(division.mesh.device, only) as stand_ins:
        moved = {own: whole for own, whole in stand_ins.items() if own in mine}
        owner_of = _owners(_named(model, moved), division)
        owned = {whole for name, whole in _named(model, moved) if owner_of[name] == _index(division, name)}
        inner = spec.build(model, {p for p in mine if p not in stand_ins} | owned)
    return Assembled(inner, moved, owner_of, division)


def _owners(wholes: list[tuple[str, nn.Parameter]], division: Division) -> dict[str, int]:
    """The owner of each parameter: the largest first, each to the rank of its axis with the fewest numbers so far."""
    loads: dict[str, list[int]] = {}
    owner = {}
    for name, whole in sorted(wholes, key=lambda pair: -pair[1].numel()):
        axis = division.parts[name].axis
        load = loads.setdefault(axis, [0] * division.mesh.size(axis))
        owner[name] = load.index(min(load))
        load[owner[name]] += whole.numel()
    return owner


def _index(division: Division, name: str) -> int:
    """This rank's number among the ranks over which a parameter is divided."""
    return division.mesh.index(division.parts[name].axis)


def _named(model: nn.Module, stand_ins: StandIns) -> list[tuple[str, nn.Parameter]]:
    wholes = set(stand_ins.values())
    return [(name, p) for name, p in model.named_parameters() if p in wholes]


def _shared(group: dict[str, Any], own_of: Mapping[Tensor, nn.Parameter]) -> dict[str, Any]:
    """A group of the inner optimizer, for this rank's parts."""
    pairs = zip(group["param_names"], group["params"], strict=True)
    rest = {key: value for key, value in group.items() if key not in (*_OWN, "fused")}
    return {**rest, **_group([(name, own_of.get(p, p)) for name, p in pairs])}


def _group(named: list[tuple[str, nn.Parameter]]) -> dict[str, Any]:
    """A group of named parameters, which may be empty."""
    return {"params": named, "param_names": []}


def _longest(part: ParameterSlice, ranks: World) -> int:
    return max(length for _, length in part.places(ranks.size))


def _empty(own: Tensor, part: ParameterSlice, ranks: World) -> list[Tensor]:
    """Room for the parts of all ranks, the divided dimension first, of one length."""
    shape = own.movedim(part.dim, 0).shape[1:]
    return [own.new_empty(_longest(part, ranks), *shape) for _ in range(ranks.size)]


def _padded(x: Tensor, part: ParameterSlice, ranks: World) -> Tensor:
    """A part with the divided dimension first, as long as the longest."""
    first = x.movedim(part.dim, 0)
    missing = _longest(part, ranks) - len(first)
    return torch.cat([first, first.new_zeros(missing, *first.shape[1:])]) if missing else first.contiguous()
