"""Data parallelism with whole parameters on every rank: replicas (DDP), and ZeRO stages 1 and 2."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ....core.ranks import Ranks
from ....nn.layers.moe import Mixture
from ...checkpoints.pieces import TensorPiece
from ...checkpoints.slices import Parts, Saved
from ...optimizers.base import Optimizer
from ..direct import Handle, is_direct, reduce
from ..distributed import Distributed
from ..mesh import Mesh
from ..model_parallel.division import Division
from ..scale import AXES, Axis
from ..world import World
from .assembled import Assembled, built
from .buckets import Bucket, Reducer, buckets_of

DIRECT = 4  # most ranks that reduce directly: the owner needs a receive buffer for each other rank


class Replicated(Distributed):
    """Every rank has all parameters. With `stage` 1 or 2 each parameter has an owner among the ranks of a shard group.

    Stage 0: gradients are summed over all ranks (all-reduce), and every rank updates all parameters (Li et al. 2020).
    Stage 1: only the owner stores a parameter's optimizer state. It gets the summed gradient (reduce), updates the parameter
             and sends it to the others (broadcast). As much is sent as in stage 0 (Rajbhandari et al. 2020, §5).
    Stage 2: the other ranks drop their gradients after each batch, so a step of several batches stores only one sum.

    A parameter has one owner as a whole, so every optimizer works, including Muon and Adafactor, which need whole matrices.
    The largest parameters are assigned first, each to the rank that owns the fewest numbers so far.

    Afterwards gradients are summed over the other ranks that have the same part of a parameter. `assembled.Assembled`
    gives optimizers that need whole matrices the matrices that tensor or expert parallelism divides.
    """

    assembled: Assembled | None = None

    def __init__(self, model: nn.Module, mesh: Mesh, division: Division, stage: int) -> None:
        self.stage = stage
        self.divided_updates = ("shard",) if stage else ()
        axes = division.axes
        self.model_axes = tuple(axis for axis in AXES if axis in axes)
        self.optimizer_axes = tuple(axis for axis in AXES if axis in axes or axis in self.divided_updates)
        super().__init__(model, mesh, division)
        self.owner: dict[nn.Parameter, int] = {}
        self.sums: dict[nn.Parameter, Tensor] = {}  # of an owner's gradients, over the batches of a step (stage 2)

    def optimizer(self, spec: Optimizer, dtype: torch.dtype | None = None) -> torch.optim.Optimizer:
        spec.freeze_parameters(self.model)
        parameters = list(dict.fromkeys(p for p in self.model.parameters() if p.requires_grad))
        self.names = {p: name for name, p in self.model.named_parameters()}
        sizes = [self.division.whole_size(self.names[p], p) for p in parameters]  # the same on every rank
        everywhere = [self.names[p] in self.division.everywhere for p in parameters]
        self.owner = owners(parameters, sizes, self.mesh.size(*self.divided_updates), everywhere)
        self.mine = self.mesh.index(*self.divided_updates)
        mine = {p for p, owner in self.owner.items() if not self.stage or owner == self.mine}
        optimizer = built(spec, self.model, self.division, mine)
        self.assembled = optimizer if isinstance(optimizer, Assembled) else None
        self.shard = self.mesh.group("shard")
        self.buckets = buckets_of(parameters, lambda p: (self.owner[p], self._rest(p)))
        self.mesh.make(bucket.axes for bucket in self.buckets)
        self.reducer = Reducer(
            self.buckets, self._communicate, overlap=not any(map(_communicates, self.model.modules()))
        )
        return optimizer

    def _rest(self, parameter: nn.Parameter) -> tuple[Axis, ...]:
        """The axes over which a gradient is summed, besides the axes that divide the updates."""
        return tuple(a for a in self.sharers(self.names[parameter]) if a not in self.divided_updates)

    def _communicate(self, bucket: Bucket, flat: Tensor) -> Handle | None:
        if self.stage and is_direct(flat) and self.shard.size <= DIRECT:
            return reduce(bucket.owner, flat, group_of(self.shard))
        if self.stage:
            return dist.reduce(flat, group=group_of(self.shard), group_dst=bucket.owner, async_op=True)
        ranks = self.mesh.group(*bucket.axes)
        return None if ranks.size == 1 else dist.all_reduce(flat, group=group_of(ranks), async_op=True)

    def prepare(self) -> None:
        if self.stage:
            for bucket in self.buckets:
                bucket.join()

    # -- one step -----------------------------------------------------------------------------------------------

    def before_backward(self, last: bool) -> None:
        if last or self.stage == 2:
            self.reducer.begin()

    def after_backward(self, last: bool) -> None:
        if last or self.stage == 2:
            self._collect()

    def reduce(self, optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
        for parameter, total in self.sums.items():
            parameter.grad = total
        self.sums = {}
        return [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]

    def _collect(self) -> None:
        """Take the sums out of the buckets, and drop the gradients that they were made of."""
        self.reducer.finish()
        for bucket in self.buckets:
            flat, bucket.flat = bucket.flat, []
            if not flat or (self.stage and bucket.owner != self.mine):
                continue
            ranks = self.mesh.group(*bucket.axes)
            if self.stage and ranks.size > 1:
                for part in flat:
                    dist.all_reduce(part, group=group_of(ranks))
            for parameter, gradient in bucket.gradients(flat):
                self.sums[parameter] = self.sums[parameter] + gradient if parameter in self.sums else gradient

    @torch.no_grad()
    def publish(self) -> None:
        if not self.stage:
            return
        shard = group_of(self.shard)
        works = [
            dist.broadcast(bucket.joined, group=shard, group_src=bucket.owner, async_op=True) for bucket in self.buckets
        ]
        for work in works:
            if work is not None:
                work.wait()

    # -- checkpoints --------------------------------------------------------------------------------------------

    def piece(self, path: str, tensor: Tensor) -> TensorPiece | None:
        whole = path not in self.division.parts and self._is_assembled(path)
        return None if whole else super().piece(path, tensor)

    def _is_assembled(self, path: str) -> bool:
        """Whether a state `<parameter>/<state>` is of a whole parameter, and not of this rank's part of one."""
        return self.assembled is not None and path.rpartition("/")[0] in self.assembled.owner_of

    def model_part(self, tensors: Parts) -> dict[str, Tensor | Saved]:
        return {path: self._cut(path, tensor) for path, tensor in tensors.items() if self.division.has(path)}

    def optimizer_part(self, tensors: Parts) -> dict[str, Tensor | Saved]:
        mine = {name for p, name in self.names.items() if not self.stage or self.owner.get(p) == self.mine}
        parts: dict[str, Tensor | Saved] = {}
        for path, tensor in tensors.items():
            name = path.rpartition("/")[0]
            if self.assembled is not None and name in self.assembled.owner_of:
                if name in mine and self.assembled.owns(name):
                    parts[path] = tensor
            elif name in mine:
                parts[path] = self._cut(path, tensor)
        return parts

    def _cut(self, path: str, tensor: Tensor | Saved) -> Tensor | Saved:
        """This rank's part of a whole tensor of the model or the optimizer."""
        part = self.division.part_of(path)
        return tensor if part is None or not tensor.ndim else tensor.narrow(part.dim, part.start, part.length)


def group_of(ranks: Ranks) -> dist.ProcessGroup | None:
    """The process group of several ranks; None, the default one, for all of them."""
    assert isinstance(ranks, World)
    return ranks.group


def _communicates(module: nn.Module) -> bool:
    """Whether a module's backward pass communicates itself, or makes gradients in several goes, so gradients have to be
    sent after it."""
    return isinstance(module, Mixture) or any(getattr(module, name, None) for name in ("reversible", "begin_split"))


def owners(
    parameters: list[nn.Parameter], sizes: list[int], ranks: int, everywhere: list[bool]
) -> dict[nn.Parameter, int]:
    """The rank that owns each parameter: the largest first, each to the rank with the fewest numbers so far.

    Parameters that are `everywhere`, on all stages of a pipeline, come first: the others differ from stage to stage, and all
    stages have to give the shared ones the same owners.
    """
    loads, owner = [0] * ranks, {}
    of_all = zip(parameters, sizes, everywhere, strict=True)
    for parameter, size, _ in sorted(of_all, key=lambda one: (not one[2], -one[1])):
        rank = loads.index(min(loads))
        owner[parameter] = rank
        loads[rank] += size
    return owner
