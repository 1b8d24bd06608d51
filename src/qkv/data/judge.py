"""How good outputs are: what a task makes of a model's outputs beside the truth."""

from __future__ import annotations

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

    def read(self, model: nn.Module, batch: Batch) -> None:
        """Ask the model, which is in evaluation mode, about a batch on its device, and `add` what it says: the head's
        outputs, on the CPU, in fp32. A judge that wants something else of the model overrides this."""
        if type(self).add is not Judge.add:
            self.add(said_of(model, batch), batch)

    def add(self, outputs: Any, batch: Batch) -> None:
        """Take in what the model says of a batch; `batch.texts` are the examples behind its rows."""

    def found(self) -> dict[str, Measured]:
        """The metrics by name. Asked once, after all batches."""
        return {}

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
