"""Fully sharded data parallelism, ZeRO stage 3, on PyTorch's `fully_shard` (FSDP2; Zhao et al. 2023)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.hooks import RemovableHandle

from ....nn.cost.plan.rules import check_optimizer
from ....nn.layers.embedding import TokenEmbedding
from ....nn.layers.grouped_linear import GroupedLinear
from ....nn.layers.linear import Linear
from ....nn.models.block import BlockModule
from ....nn.models.heads.language_model import LanguageModelHead
from ....nn.models.initialization import Values
from ...checkpoints.pieces import TensorPiece, rows_of
from ...checkpoints.slices import Parts, Saved
from ...checkpoints.weights import local
from ...optimizers.base import Optimizer
from ..direct import DirectGather, DirectScatter
from ..distributed import Distributed
from ..mesh import Mesh
from ..model_parallel.division import Division
from ..model_parallel.pipeline import HandedOver, Pipeline
from ..scale import AXES, Axis

T = TypeVar("T")


class FullySharded(Distributed):
    """Each rank has a part of every parameter, of its gradient and of its optimizer state.

    A parameter's first axis is cut into as many equal parts as there are ranks in a shard group. A block's parameters are
    gathered before its forward and its backward pass, and its gradients are summed into the parts after it (reduce-scatter).
    Afterwards they are summed over the other ranks that have the same part of a parameter. Parameters outside the blocks, or
    shared between them, stay gathered from forward to backward. In a pipeline this holds for the layers of the rank's stage.

    The optimizer updates the parts, so it must be element-wise. For an evaluation, all parameters are gathered. With
    `in_parts`, only parameters outside the blocks are, and each block's parameters while it computes. All ranks must then
    run the blocks equally often.

    In bf16 and fp16, parameters are gathered in that dtype, and their gradients are summed in fp32 into fp32 parts. Layers
    that compute in fp32 on one rank, such as norms, do so here too, with rounded parameters (`as_under_autocast`).

    Raises ValueError for an optimizer that needs whole parameters.
    """

    divided_updates = ("shard",)

    def __init__(
        self, model: nn.Module, mesh: Mesh, division: Division, values: Values | None = None, in_parts: bool = False
    ) -> None:
        self.in_parts = in_parts
        self.values = values  # of parameters on the meta device, which get memory when they are sharded
        axes = {*division.axes, "shard"}
        self.model_axes = self.optimizer_axes = tuple(axis for axis in AXES if axis in axes)
        super().__init__(model, mesh, division)
        self._hooks: list[RemovableHandle] = []
        self.axes = self.mesh.device_mesh(*(("data", "shard") if mesh.size("data") > 1 else ("shard",)))

    def optimizer(self, spec: Optimizer, dtype: torch.dtype | None = None) -> torch.optim.Optimizer:
        check_optimizer(3, spec.kind, spec.elementwise)
        spec.freeze_parameters(self.model)
        self.narrow = dtype is not None
        policy = MixedPrecisionPolicy(dtype, torch.float32 if self.narrow else None, cast_forward_inputs=False)
        if self.narrow:
            as_under_autocast(self.model)
        if self.division.pipeline is not None:
            self.model.forward = partial(_until_handed_over, self.model.forward, self.division.pipeline)
        self.units = list(units(self.model))
        for unit in self.units:
            fully_shard(unit, mesh=self.axes, mp_policy=policy)
        fully_shard(self.model, mesh=self.axes, mp_policy=policy)
        if self.division.pipeline is not None:  # after FSDP2's own hook
            self.model.register_forward_hook(partial(_hand_over, self.division.pipeline))
        self.modules = [module for module in self.model.modules() if isinstance(module, FSDPModule)]
        for module in self.modules:
            module.set_gradient_divide_factor(1.0)  # sums, not means
            module.set_force_sum_reduction_for_comms(True)  # gloo has no operation that multiplies
            if self.mesh.device.type == "cpu":
                module.set_custom_all_gather(DirectGather())  # type: ignore[arg-type]
                module.set_custom_reduce_scatter(DirectScatter())  # type: ignore[arg-type]
        self.whole = {name: p.shape for name, p in self.model.named_parameters()}
        if self.values is not None:
            self.fill(self.values)
            self.values = None
        self.parts: dict[nn.Parameter, nn.Parameter] = {}
        self.names = {}
        groups = spec.groups(self.model)
        for group in groups:
            group["params"] = [(name, self._part(parameter)) for name, parameter in group["params"]]
            self.names |= {part: name for name, part in group["params"]}
        self.mesh.make(self._rest(name) for name in self.names.values())
        return spec.make(groups, self.model)

    def prepare(self) -> None:
        self.model._get_fsdp_state()._lazy_init()  # type: ignore[operator]  # an objective may run a part of the model first

    def _allocate(self) -> None:
        buffers = dict(self.model.named_buffers(remove_duplicate=False))
        real = {path: local(p.detach()) for path, p in self.model.named_parameters() if not p.is_meta}
        self.model.to_empty(device=self.device)
        for path, parameter in self.model.named_parameters():
            if path in real:
                local(parameter.detach()).copy_(real[path])
        for path, buffer in buffers.items():
            setattr(*self.division._find(path), buffer)

    def _part(self, parameter: nn.Parameter) -> nn.Parameter:
        """The rank's part of a parameter, as an ordinary one that shares its memory."""
        part = nn.Parameter(local(parameter.detach()))
        self.parts[part] = parameter
        return part

    # -- one step -----------------------------------------------------------------------------------------------

    def reduce(self, optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
        for part, parameter in self.parts.items():
            part.grad, parameter.grad = None if parameter.grad is None else local(parameter.grad), None
        for part, name in self.names.items():
            ranks = self.mesh.group(*self._rest(name))
            if ranks.size > 1:
                part.grad = ranks.sum(torch.zeros_like(part) if part.grad is None else part.grad)
        return [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]

    def _rest(self, name: str) -> tuple[Axis, ...]:
        """The axes over which FSDP2 does not sum a gradient."""
        return tuple(axis for axis in self.sharers(name) if axis not in ("data", "shard"))

    def gather(self) -> None:
        parts = dict(self.model.named_parameters(remove_duplicate=False)) if self.narrow else {}
        for module in self.modules:
            module.unshard()
            if self.in_parts and module is not self.model:
                module.reshard()  # its memory was made here, as what inference mode makes can't be trained
            else:
                module.set_reshard_after_forward(False, recurse=False)
        if self.in_parts:
            for path, unit in self.model.named_modules():
                if unit in self.units:
                    own = {name: parts.pop(name) for name in list(parts) if name.startswith(f"{path}.")}
                    self._hooks.append(unit.register_forward_pre_hook(partial(self._widen, own)))
                    if (cross := getattr(unit, "cross", None)) is not None:  # reads an encoder's output before a search
                        cross.remember = partial(self._remember, unit, own, cross.remember)
        self._widen(parts)
        super().gather()

    def _widen(self, parts: Mapping[str, nn.Parameter], *_: Any) -> None:
        """Put whole parameters in fp32 in the places of narrow ones."""
        wide: dict[nn.Parameter, nn.Parameter] = {}
        for path, part in parts.items():
            if part not in wide:
                assert isinstance(part, DTensor)
                wide[part] = nn.Parameter(part.full_tensor().detach(), part.requires_grad)
            self.division.set(path, wide[part])

    def _remember(self, unit: Any, parts: Mapping[str, nn.Parameter], remember: Callable[..., T], *inputs: Any) -> T:
        """Call a method of a block's cross-attention while the block is gathered."""
        unit.unshard()
        self._widen(parts)
        result = remember(*inputs)
        unit.reshard()
        return result

    def scatter(self) -> None:
        super().scatter()
        while self._hooks:
            self._hooks.pop().remove()
        for unit in self.units:
            vars(getattr(unit, "cross", None) or unit).pop("remember", None)
        for module in self.modules:
            module.set_reshard_after_forward(module is not self.model, recurse=False)
            module.reshard()

    # -- checkpoints --------------------------------------------------------------------------------------------

    def piece(self, path: str, tensor: Tensor) -> TensorPiece | None:
        found = self._rows(path) if tensor.ndim else None
        return None if found is None else self._within(path, found[1])

    def _rows(self, path: str) -> tuple[tuple[int, ...], TensorPiece] | None:
        """The shape and place of this rank's rows among those that its shard group has of a parameter or a state."""
        shape = self.whole.get(path) or self.whole.get(path.rpartition("/")[0])
        return None if shape is None else rows_of(shape, self.mesh.size("shard"), self.mesh.index("shard"))

    def _within(self, path: str, rows: TensorPiece) -> TensorPiece:
        """The place of rows in the whole tensor."""
        part = self.division.part_of(path)
        return rows if part is None else rows.within(part.piece(torch.Size(rows.shape)))

    def model_part(self, tensors: Parts) -> dict[str, Tensor | Saved]:
        return self._cut(tensors)

    def optimizer_part(self, tensors: Parts) -> dict[str, Tensor | Saved]:
        return self._cut(tensors)

    def _cut(self, tensors: Parts) -> dict[str, Tensor | Saved]:
        parts: dict[str, Tensor | Saved] = {}
        for name, tensor in tensors.items():
            if not self.division.has(name):
                continue
            found = self._rows(name) if tensor.ndim else None
            parts[name] = tensor if found is None else self._within(name, found[1]).of(tensor, found[0])
        return parts


def _until_handed_over(forward: Callable[..., Any], pipeline: Pipeline, *inputs: Any, **named: Any) -> Any:
    """A stage's forward pass, which returns what it has sent to the next rank, so FSDP2 can hook its backward pass."""
    try:
        return forward(*inputs, **named)
    except HandedOver:
        return pipeline.current.sent


def _hand_over(pipeline: Pipeline, module: nn.Module, inputs: Any, output: Any) -> None:
    if output is pipeline.current.sent:
        raise HandedOver


def as_under_autocast(model: nn.Module) -> None:
    """Let modules with narrow parameters compute in the dtypes that they have under autocast with fp32 parameters.

    Autocast narrows the inputs of matrix products, so linear layers, output layers and experts take their parameters as
    they are. Rows of a table are widened, and all other modules get their parameters in fp32 while they run.
    """
    for module in model.modules():
        if isinstance(module, TokenEmbedding):
            module.rows = partial(_wide_rows, module.rows)  # type: ignore[method-assign]
        elif not isinstance(module, _NARROW) and any(True for _ in module.parameters(recurse=False)):
            module.forward = partial(_widened, module, module.forward)


_NARROW = (Linear, nn.modules.conv._ConvNd, LanguageModelHead, GroupedLinear)


def _wide_rows(rows: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
    return rows(ids).float()


def _widened(module: nn.Module, forward: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    """Run a module's forward pass with its own parameters in fp32."""
    wide = {name: p.float() for name, p in module.named_parameters(recurse=False)}
    vars(module).update(wide)  # found before parameters
    try:
        return forward(*inputs, **named)
    finally:
        for name in wide:
            del vars(module)[name]


def units(model: nn.Module) -> Iterator[nn.Module]:
    """The blocks whose parameters are gathered together: they share none with the rest of the model."""
    users = Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))
    for block in model.modules():
        if isinstance(block, BlockModule):
            own = Counter(id(p) for module in block.modules() for p in module.parameters(recurse=False))
            if own and all(users[p] == n for p, n in own.items()):
                yield block
