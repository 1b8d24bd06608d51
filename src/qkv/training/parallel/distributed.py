"""`Distributed`: what the strategies of many ranks have in common: norms, checkpoints, and whole models for evaluations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...core.ranks import Ranks
from ...core.spec import brief
from ...nn.models.initialization import Values
from ..checkpoints.pieces import CheckpointShard, TensorPiece, shard_name
from ..checkpoints.slices import loaded
from ..checkpoints.weights import local
from ..strategy import BackwardContext, Strategy, Tensors
from .mesh import Mesh
from .model_parallel.division import Division
from .scale import AXES, ROW_AXES, STAGE_AXES, Axis


class Distributed(Strategy):
    """A model on a mesh of ranks. `division` says which parameters are divided over other axes than "shard".

    A parameter's gradient is the sum over all ranks that have it, or its part: those that differ in other axes than it is
    divided over.
    """

    def __init__(self, model: nn.Module, mesh: Mesh, division: Division) -> None:
        super().__init__(model, mesh.ranks)
        self.mesh, self.division = mesh, division
        self.stages = mesh.size("pipeline")
        self.number = mesh.index(*self.model_axes)
        self.shards_model = self.mesh.size(*self.model_axes) > 1
        self._names: dict[Hashable, list[str]] = {}  # of reported values, by the terms that a step counts

    @property
    def device(self) -> torch.device:
        return self.mesh.device

    model_axes: tuple[Axis, ...]  # over which the model is divided
    optimizer_axes: tuple[Axis, ...]  # over which the optimizer's state is divided

    @property
    def rows(self) -> Ranks:
        return self.mesh.group(*ROW_AXES)

    @property
    def row_numbers(self) -> list[int]:
        return self.mesh.indices("pipeline", *ROW_AXES)

    @property
    def peers(self) -> Ranks:
        return self.mesh.stage

    @property
    def copies(self) -> int:
        return self.mesh.stage.size // self.rows.size

    @torch.no_grad()
    def fill(self, values: Values) -> None:
        """Give parameters on the meta device memory, and this rank's part of their values. One whole parameter at a time is
        drawn or read."""
        self._allocate()
        for path, parameter in self.model.named_parameters():
            if path in values:
                part = self.model_part({path: values.value(path)})[path]
                local(parameter.detach()).copy_(loaded(part))

    def _allocate(self) -> None:
        """Give parameters on the meta device memory."""
        real: dict[nn.Parameter, nn.Parameter] = {}
        for path, parameter in list(self.model.named_parameters(remove_duplicate=False)):
            if parameter.is_meta:
                if parameter not in real:
                    empty = torch.empty_like(parameter, device=self.device)
                    real[parameter] = nn.Parameter(empty, parameter.requires_grad)
                self.division.set(path, real[parameter])

    def axes_of(self, name: str) -> tuple[Axis, ...]:
        """The axes over which a parameter of this name is divided, besides "shard"."""
        return self.division.axes_of(name)

    def sharers(self, name: str) -> tuple[Axis, ...]:
        """The axes in which ranks differ that have the same part of a parameter."""
        axes = AXES if name in self.division.everywhere else STAGE_AXES
        return tuple(axis for axis in axes if axis not in self.axes_of(name))

    def run(
        self,
        shapes: Sequence[Hashable],
        forward: Callable[[int], Tensor],
        around: BackwardContext,
        backward: Callable[[Tensor], None],
    ) -> None:
        run = super().run if self.division.pipeline is None else self.division.pipeline.run
        run(shapes, forward, around, backward)

    def agreed(self, names: list[str], counted: Hashable) -> list[str]:
        if self.stages == 1:
            return names
        if counted not in self._names:
            every = self.mesh.group("pipeline").gather(names)
            self._names[counted] = list(dict.fromkeys(name for some in every for name in some))
        unknown = [name for name in names if name not in self._names[counted]]
        if unknown:
            raise ValueError(
                f"the objective reports {brief(unknown[0])} for some batches only, which scale.pipeline does not "
                "support; report it for all batches, or use other axes"
            )
        return self._names[counted]

    def norm(self, parameters: list[nn.Parameter]) -> Tensor:
        """Every rank adds its share of the squares: if several ranks have a parameter, its squares are divided by their
        number."""
        names = self.names
        by_copies: defaultdict[int, list[nn.Parameter]] = defaultdict(list)
        for parameter in parameters:
            axes = [axis for axis in self.sharers(names[parameter]) if axis not in self.divided_updates]
            by_copies[self.mesh.size(*axes) * self.division.copies_of(names[parameter])].append(parameter)
        # The same on every rank. Of a pipeline's stages, one may train only what all have.
        if self.stages == 1 and set(by_copies) == {self.ranks.size}:
            return super().norm(parameters)
        dtype = torch.promote_types(next(self.model.parameters()).dtype, torch.float32)  # also of a rank that owns none
        squares = torch.zeros((), dtype=dtype, device=self.mesh.device)
        for copies, some in by_copies.items():
            squares = squares + super().norm(some).square() / copies
        dist.all_reduce(squares)
        return squares.sqrt()

    divided_updates: tuple[Axis, ...] = ()  # axes over which the updates of all parameters are divided
    names: Mapping[nn.Parameter, str]  # of the parameters that this rank updates

    def gather(self) -> None:
        self.division.gather()

    def scatter(self) -> None:
        self.division.scatter()

    # -- checkpoints --------------------------------------------------------------------------------------------

    def piece(self, path: str, tensor: Tensor) -> TensorPiece | None:
        """Where this rank's tensor of a parameter, or of a state `<parameter>/<state>` like it, is in the whole one."""
        part = self.division.part_of(path)
        return None if part is None or not tensor.ndim else part.piece(tensor.shape)

    def pieces(self, tensors: Tensors) -> dict[str, TensorPiece]:
        known = {name: self.piece(name, tensor) for name, tensor in tensors.items()}
        return {name: piece for name, piece in known.items() if piece is not None}

    def files(self, model: Mapping[str, Tensors], optimizer: Mapping[str, Tensors]) -> dict[str, CheckpointShard]:
        files: dict[str, CheckpointShard] = {}
        for axes, named in ((self.model_axes, model), (self.optimizer_axes, optimizer)):
            if any(self.mesh.place[axis] for axis in self.mesh.place if axis not in axes):
                continue  # another rank has the same
            for name, tensors in named.items():
                if axes:
                    own = {path: tensor for path, tensor in tensors.items() if self._first(path, axes)}
                    file = shard_name(name, self.mesh.index(*axes), self.mesh.size(*axes))
                    files[file] = CheckpointShard(own, self.pieces(own))
                else:
                    files[name] = CheckpointShard(tensors, {})
        return files

    def _first(self, path: str, axes: tuple[Axis, ...]) -> bool:
        """Whether this is the first rank, along the axes, that has a tensor of a model or of an optimizer."""
        name = path if path in self.division.parts else path.rpartition("/")[0]
        over = {*self.axes_of(name), *(axis for axis in ("shard", "pipeline") if axis in axes)}
        return all(not self.mesh.place[axis] for axis in axes if axis not in over)
