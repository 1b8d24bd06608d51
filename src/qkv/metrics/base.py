"""How good outputs are: what a task makes of a model's outputs beside the truth."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from ..core.batch import Batch


class MetricValue(NamedTuple):
    """A number, and how it was computed where there is more than one way."""

    value: float
    details: str = ""


class Metric:
    """Collects outputs batch by batch; then it has metrics, and samples to be shown.

    The plain one measures nothing beyond the loss. A task's own is a subclass that has an `add`.
    """

    nans: int = 0  # batches of which an output is NaN

    def evaluate(self, model: nn.Module, batch: Batch) -> None:
        """Run the model, which is in evaluation mode, on a batch on its device, and `update` with the head's outputs, on the
        CPU, in fp32. A metric that needs something else of the model overrides this."""
        if type(self).update is not Metric.update:
            said = model_outputs(model, batch)
            self.check_nan(said)
            self.update(said, batch)

    def check_nan(self, outputs: Any) -> None:
        """Note whether outputs hold NaN, of which sorting and argmax would make an answer like any other."""
        tensors = (one for one in _pytree.tree_leaves(outputs) if isinstance(one, Tensor))
        self.nans += any(bool(one.isnan().any()) for one in tensors)

    def update(self, outputs: Any, batch: Batch) -> None:
        """Take in what the model says of a batch; `batch.texts` are the examples behind its rows."""

    def compute(self) -> dict[str, MetricValue]:
        """The metrics by name. Asked once, after all batches."""
        return {}

    def results(self) -> dict[str, MetricValue]:
        """The metrics by name; none is a number where an output was none."""
        if not self.nans:
            return self.compute()
        how = f"the model's outputs hold NaN, in {self.nans:,} batch{'es' if self.nans > 1 else ''}"
        return {name: MetricValue(math.nan, how) for name in self.compute()}

    def samples(self, count: int) -> list[dict[str, Any]]:
        """At most so many outputs beside the truth: `{"source", "output", "target"}`, texts, and perhaps a "picture". Where
        they are numbers, which come near the truth rather than equal it, "graded" is true.

        A picture is `{"kind": …}` with numbers and lists, drawn by the function of that kind in `look.pictures`.
        """
        return []


def model_outputs(model: nn.Module, batch: Batch) -> Any:
    """What a model says of a batch on its device: the head's outputs, on the CPU, in fp32."""
    return _pytree.tree_map_only(Tensor, _at_hand, model(**batch.inputs))


def _at_hand(tensor: Tensor) -> Tensor:
    return tensor.to("cpu", torch.float32) if tensor.is_floating_point() else tensor.cpu()
