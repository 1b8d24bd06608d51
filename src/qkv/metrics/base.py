"""How good outputs are: what a task makes of a model's outputs beside the truth."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from ..core.batch import Batch


class Measured(NamedTuple):
    """A number, and how it was computed where there is more than one way."""

    value: float
    how: str = ""


class Judge:
    """Collects outputs batch by batch; then it has metrics, and samples to be shown.

    The plain one measures nothing beyond the loss. A task's own is a subclass that has an `add`.
    """

    nans: int = 0  # batches of which an output is NaN

    def read(self, model: nn.Module, batch: Batch) -> None:
        """Ask the model, which is in evaluation mode, about a batch on its device, and `add` what it says: the head's
        outputs, on the CPU, in fp32. A judge that wants something else of the model overrides this."""
        if type(self).add is not Judge.add:
            said = said_of(model, batch)
            self.hear(said)
            self.add(said, batch)

    def hear(self, outputs: Any) -> None:
        """Note whether outputs hold NaN, of which sorting and argmax would make an answer like any other."""
        tensors = (one for one in _pytree.tree_leaves(outputs) if isinstance(one, Tensor))
        self.nans += any(bool(one.isnan().any()) for one in tensors)

    def add(self, outputs: Any, batch: Batch) -> None:
        """Take in what the model says of a batch; `batch.texts` are the examples behind its rows."""

    def found(self) -> dict[str, Measured]:
        """The metrics by name. Asked once, after all batches."""
        return {}

    def measured(self) -> dict[str, Measured]:
        """The metrics by name; none is a number where an output was none."""
        if not self.nans:
            return self.found()
        how = f"the model's outputs hold NaN, in {self.nans:,} batch{'es' if self.nans > 1 else ''}"
        return {name: Measured(math.nan, how) for name in self.found()}

    def samples(self, count: int) -> list[dict[str, Any]]:
        """At most so many outputs beside the truth: `{"source", "output", "target"}`, texts, and perhaps a "picture". Where
        they are numbers, which come near the truth rather than equal it, "graded" is true.

        A picture is `{"kind": …}` with numbers and lists, drawn by the function of that kind in `look.pictures`.
        """
        return []


def said_of(model: nn.Module, batch: Batch) -> Any:
    """What a model says of a batch on its device: the head's outputs, on the CPU, in fp32."""
    return _pytree.tree_map_only(Tensor, _at_hand, model(**batch.inputs))


def _at_hand(tensor: Tensor) -> Tensor:
    return tensor.to("cpu", torch.float32) if tensor.is_floating_point() else tensor.cpu()
