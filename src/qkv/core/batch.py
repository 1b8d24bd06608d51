"""`Batch`, the input of a training or evaluation step, and `Term`, a named part of its loss."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from . import several
from .spec import brief

IGNORE = -100  # label of positions that the loss ignores


class LabelCounts(dict[str, int]):
    """How many labels each loss term counts, by its name; a term that has no entry counts as many as `loss` does."""

    def __missing__(self, name: str) -> int:
        if "loss" not in self:
            raise ValueError(
                f"this batch has no labels that a term {brief(name)} could count; it counts: {', '.join(self) or 'nothing'}"
            )
        return self["loss"]


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to a device, without waiting for it."""
    staged = tensor.pin_memory() if device.type == "cuda" and tensor.device.type == "cpu" else tensor
    return staged.to(device, non_blocking=True)


@dataclass(frozen=True, eq=False)
class Batch:
    """Tensors for one forward pass.

    inputs:   keyword arguments of the model's forward: `ids`, `layout`, `target`, `target_layout`, `token_types` …
    labels:   what the head's loss takes: for tokens (B, T) int64, already aligned with the output (nothing downstream shifts
              them again); −100 is not counted.
    counts:   how many labels each named loss term will count (`LabelCounts`); known here, before the forward pass.
    tokens:   real tokens (source and target) in the batch; `slots` counts padding too.
    position: JSON-able; a stream opened with it continues with the batch after this one.
    texts:    the examples behind the rows, if evaluation needs them.
    targets:  what an objective wants besides, by name: whether two sentences follow one another, the boxes in a picture.
    idle:     the batch had too few rows for all ranks, and this rank has none of them. It computes another rank's rows
              to take part in the communication of the step, and its loss is multiplied by 0.
    first_row: index of the first row in the batch of all ranks; for packed rows, index of the first document.
    seed:     seeds the random numbers that the model draws for the batch; None uses the default generator.
    """

    inputs: dict[str, Any]
    labels: Tensor | None = None
    counts: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    slots: int = 0
    position: dict[str, Any] = field(default_factory=dict)
    texts: tuple[dict[str, Any], ...] = ()
    targets: dict[str, Any] = field(default_factory=dict)
    idle: bool = False
    first_row: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.inputs, dict) or not isinstance(self.counts, dict):
            raise several.in_words(TypeError(), Batch, self.inputs, self.labels, self.counts)
        object.__setattr__(self, "counts", LabelCounts(self.counts))

    @several.worded
    def to(self, device: torch.device | str) -> Batch:
        """Move to a device. For a GPU the tensors are pinned first, so the copy is asynchronous."""
        target = torch.device(device)
        moving = (self.inputs, self.labels, self.targets)
        move = partial(to_device, device=target)
        inputs, labels, targets = _pytree.tree_map_only(Tensor, move, moving)  # a Layout is a pytree
        return replace(self, inputs=inputs, labels=labels, targets=targets)

    @property
    def shapes(self) -> tuple[Any, ...]:
        """The names of the inputs and targets, and the shapes of their tensors: batches that agree in these make hidden
        states of the same shapes."""
        leaves = _pytree.tree_leaves((self.inputs, self.labels, self.targets))
        shapes = (tuple(leaf.shape) if isinstance(leaf, Tensor) else None for leaf in leaves)
        return (*self.inputs, *self.targets, *shapes)

    @property
    def rows(self) -> int:
        return len(next(iter(self.inputs.values())))


@dataclass(frozen=True, eq=False)
class Term:
    """One named part of a loss: its sum over what it counts, how many that is, and its weight in the whole.

    The loss of an optimizer step is Σ_terms weight · Σ_micro-batches,ranks sum ÷ Σ_micro-batches,ranks count, so
    accumulation, packing and ranks weigh every token alike. `value` is what to report if that differs from what is
    minimized (the plain log-likelihood under label smoothing). `over` names the term by whose count this one is
    divided, itself by default: one that is no sum over items, but taken over a batch as a whole, is multiplied by that
    term's count there, and so weighs in each batch as much as the other.
    """

    sum: Tensor
    count: int
    weight: float = 1.0
    value: Tensor | None = None
    over: str | None = None


Terms = dict[str, Term]
