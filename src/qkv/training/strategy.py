"""`Strategy`: how model, gradients and optimizer state are distributed over ranks. The base class replicates everything."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from ..core.ranks import Ranks
from .checkpoints.pieces import CheckpointShard, TensorPiece
from .checkpoints.slices import Parts, Saved
from .checkpoints.weights import model_tensors
from .optimizers.base import Optimizer

Tensors = Mapping[str, Tensor]


class BackwardContext(Protocol):
    """Makes a context for the backward pass of a batch, given its number. `complete`: all its gradients are there then."""

    def __call__(self, at: int, complete: bool = True) -> AbstractContextManager[None]: ...


class Strategy:
    """Every rank has the whole model and the whole optimizer; gradients are summed over the ranks.

    A subclass distributes more. The tensors that a rank has are its own parts of the whole ones; `pieces` says which.
    """

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        self.model, self.ranks = model, ranks

    @property
    def device(self) -> torch.device:
        """The device on which this rank computes."""
        return next(self.model.parameters()).device

    @property
    def copies(self) -> int:
        """How often the labels of a batch are counted over all ranks."""
        return 1

    @property
    def rows(self) -> Ranks:
        """The ranks that have different rows of a batch, seen from this one."""
        return self.ranks

    @property
    def row_numbers(self) -> list[int]:
        """For each rank, its number among the ranks with different rows. Ranks with the same number draw the same
        numbers."""
        return list(range(self.ranks.size))

    @property
    def peers(self) -> Ranks:
        """The ranks that compute the same layers, for which statistics of a batch are summed."""
        return self.ranks

    def optimizer(self, spec: Optimizer, dtype: torch.dtype | None = None) -> torch.optim.Optimizer:
        """Make the optimizer of the parameters that this rank updates.

        dtype: of autocast; None if the model computes in the dtype of its weights.
        """
        return spec.build(self.model)

    def prepare(self) -> None:
        """Called before training, when the parameters have the dtype that they keep."""

    stages = 1  # of a pipeline, each with some of the layers

    def run(
        self,
        shapes: Sequence[Hashable],
        forward: Callable[[int], Tensor],
        around: BackwardContext,
        backward: Callable[[Tensor], None],
    ) -> None:
        """The forward and backward passes of a step.

        shapes:   of the tensors of each batch.
        forward:  the loss of a batch, given its number.
        around:   a context for the backward pass of a batch, or for a part of it.
        backward: the backward pass from a loss.
        """
        for i in range(len(shapes)):
            loss = forward(i)
            with around(i):
                backward(loss)

    def agreed(self, names: list[str], counted: Hashable) -> list[str]:
        """The names of the reported values in a step that counts these terms. Only the last stage of a pipeline knows
        them."""
        return names

    def before_backward(self, last: bool) -> None:
        """Called before the backward pass of each batch of a step; `last` is true for the last one."""

    def after_backward(self, last: bool) -> None:
        """Called after the backward pass of each batch of a step."""

    def reduce(self, optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
        """Sum the gradients of a step over the ranks. Returns the parameters of this rank's optimizer that have one."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if self.ranks.size > 1:
            for parameter in parameters:  # also those that no batch of this rank touched
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = self.ranks.sum(gradient)
        return [p for p in parameters if p.grad is not None]

    def norm(self, parameters: list[nn.Parameter]) -> Tensor:
        """The norm of the gradients of all ranks' parameters, each counted once."""
        return get_total_norm([p.grad for p in parameters if p.grad is not None])

    def publish(self) -> None:
        """Called after the optimizer has updated the parameters: give them to the ranks that lack them."""

    def check_replicas(self) -> None:
        """Compare the copies of the weights. Raises ValueError that names a rank whose copy differs from another's."""
        if self.ranks.size == 1:
            return
        first: dict[int, tuple[int, int]] = {}
        copies = self.ranks.gather((self.number, checksum(model_tensors(self.model))))
        for rank, (number, found) in enumerate(copies):
            owner, wanted = first.setdefault(number, (rank, found))
            if found != wanted:
                raise ValueError(
                    f"the weights of rank {rank} differ from the weights of rank {owner}, which should be equal: memory or "
                    "a transfer is faulty. Nothing is saved; continue from the last save with --resume, on sound hardware"
                )

    def gather(self) -> None:
        """Make all parameters whole, so the model can be used as if there were one rank."""

    def scatter(self) -> None:
        """Undo `gather`, to continue training."""

    # -- checkpoints --------------------------------------------------------------------------------------------

    shards_model = False  # whether ranks have different parts of the model
    number = 0  # of this rank's part of the model

    def pieces(self, tensors: Tensors) -> dict[str, TensorPiece]:
        """Where this rank's tensors are in the whole ones; whole tensors are left out."""
        return {}

    def model_part(self, tensors: Parts) -> dict[str, Tensor | Saved]:
        """This rank's part of the whole tensors of a model."""
        return dict(tensors)

    def optimizer_part(self, tensors: Parts) -> dict[str, Tensor | Saved]:
        """This rank's part of the whole tensors of an optimizer."""
        return dict(tensors)

    def files(self, model: Mapping[str, Tensors], optimizer: Mapping[str, Tensors]) -> dict[str, CheckpointShard]:
        """The files of a checkpoint that this rank writes, from its parts of the files of models and optimizers by name."""
        return {} if self.ranks.rank else {n: CheckpointShard(t, {}) for n, t in (*model.items(), *optimizer.items())}


def checksum(tensors: Tensors) -> int:
    """A checksum of the bits of tensors. NaNs count by their bits."""
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = (tensor.detach().contiguous().view(integers[tensor.element_size()]) for tensor in tensors.values())
    return sum(int(numbers.sum(dtype=torch.int64)) for numbers in bits)
