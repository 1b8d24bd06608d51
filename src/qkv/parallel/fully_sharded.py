"""Fully sharded data parallelism, ZeRO stage 3, on PyTorch's `fully_shard` (FSDP2; Zhao et al. 2023)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from ..core.ranks import Ranks
from ..models.block import BlockModule
from ..training.checkpoints.pieces import Piece, rows_of
from ..training.checkpoints.weights import Tensors, local
from ..training.optimizers.base import Optimizer
from ..training.strategy import Strategy


class FullySharded(Strategy):
    """Each rank has a part of every parameter, of its gradient and of its optimizer state.

    A parameter's first axis is cut into as many equal parts as there are ranks in a shard group. A block's parameters are
    gathered before its forward and its backward pass, and its gradients are summed into the parts after it (reduce-scatter).
    Parameters outside the blocks, or shared between them, stay gathered from forward to backward.

    The optimizer updates the parts, which only element-wise optimizers can. For an evaluation, all parameters are gathered.

    mesh: axes "data" and "shard". Gradients are summed over both; parameters are divided over "shard" alone.

    Raises ValueError for an optimizer that needs whole parameters.
    """

    def __init__(self, model: nn.Module, ranks: Ranks, mesh: DeviceMesh) -> None:
        super().__init__(model, ranks)
        self.shard = mesh["shard"].get_group()
        self.shards, self.number = mesh["shard"].size(), mesh["shard"].get_local_rank()
        self.replica = mesh["data"].get_local_rank()
        self.mesh = mesh if mesh["data"].size() > 1 else mesh["shard"]

    def optimizer(self, spec: Optimizer) -> torch.optim.Optimizer:
        if not spec.elementwise:
            raise ValueError(
                f"the optimizer {spec.kind!r} needs whole parameters, and zero=3 divides them; give scale.zero=2, or an "
                "element-wise optimizer such as adamw"
            )
        spec.freeze_parameters(self.model)
        for unit in list(units(self.model)):
            fully_shard(unit, mesh=self.mesh)
        fully_shard(self.model, mesh=self.mesh)
        self.modules = [module for module in self.model.modules() if isinstance(module, FSDPModule)]
        for module in self.modules:
            module.set_gradient_divide_factor(1.0)  # sums, not means
            module.set_force_sum_reduction_for_comms(True)  # gloo has no operation that multiplies
        self.whole = {name: p.shape for name, p in self.model.named_parameters()}
        self.parts: dict[nn.Parameter, nn.Parameter] = {}
        groups = spec.groups(self.model)
        for group in groups:
            group["params"] = [(name, self._part(parameter)) for name, parameter in group["params"]]
        return spec.make(groups, self.model)

    def _part(self, parameter: nn.Parameter) -> nn.Parameter:
        """The rank's part of a parameter, as an ordinary one that shares its memory."""
        part = nn.Parameter(local(parameter.detach()))
        self.parts[part] = parameter
        return part

    # -- one step -----------------------------------------------------------------------------------------------

    def reduce(self, optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
        for part, parameter in self.parts.items():
            part.grad, parameter.grad = None if parameter.grad is None else local(parameter.grad), None
        return [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]

    def norm(self, parameters: list[nn.Parameter]) -> Tensor:
        squares = super().norm(parameters).square()
        dist.all_reduce(squares, group=self.shard)
        return squares.sqrt()

    def gather(self) -> None:
        for module in self.modules:
            module.set_reshard_after_forward(False, recurse=False)
            module.unshard()

    def scatter(self) -> None:
        for module in self.modules:
            module.set_reshard_after_forward(module is not self.model, recurse=False)
            module.reshard()

    # -- checkpoints --------------------------------------------------------------------------------------------

    shards_model = shards_optimizer = True

    @property
    def writes(self) -> bool:
        return self.replica == 0

    def piece(self, path: str) -> tuple[int, Piece] | None:
        """The number of rows of this rank and their place, of a parameter or of a state `<parameter>/<state>` like it."""
        shape = self.whole.get(path) or self.whole.get(path.rpartition("/")[0])
        if shape is None:
            return None
        rows, piece = rows_of(torch.empty(shape[0], 0), self.shards, self.number)
        return len(rows), piece

    def pieces(self, tensors: Tensors) -> dict[str, Piece]:
        known = {name: self.piece(name) for name, tensor in tensors.items() if tensor.ndim}
        return {name: found[1] for name, found in known.items() if found is not None}

    def model_part(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._cut(tensors)

    def optimizer_part(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._cut(tensors)

    def _cut(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        parts = {}
        for name, tensor in tensors.items():
            found = self.piece(name) if tensor.ndim else None
            parts[name] = tensor if found is None else tensor[found[1].start : found[1].start + found[0]]
        return parts


def units(model: nn.Module) -> Iterator[nn.Module]:
    """The blocks whose parameters are gathered together: those that share none with the rest of the model."""
    users = Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))
    for block in model.modules():
        if isinstance(block, BlockModule):
            own = Counter(id(p) for module in block.modules() for p in module.parameters(recurse=False))
            if own and all(users[p] == n for p, n in own.items()):
                yield block
