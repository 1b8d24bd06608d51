"""The base class of metrics: `update` with each batch of outputs, then `compute`, as in torchmetrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from ..batch import Batch
from .extremes import Extremes


class MetricValue(NamedTuple):
    """A number, and details of how it was computed."""

    value: float
    details: str = ""


class MeasuredModel(Protocol):
    """What metrics use of a model: its outputs; for text also its hidden states and heads, and what it generates."""

    @property
    def hidden(self) -> Any: ...
    @property
    def head(self) -> Any: ...
    @property
    def classification_head(self) -> Any: ...
    @property
    def generate(self) -> Any: ...
    def __call__(self, *args: Any, **inputs: Any) -> Any: ...
    def parameters(self) -> Iterator[nn.Parameter]: ...


class Metric:
    """Collects outputs batch by batch, then computes metrics and returns samples.

    This base class measures nothing beyond the loss; a task's own subclass defines `update` and `compute`.
    """

    nans: int = 0  # batches with a NaN among the outputs

    def evaluate(self, model: MeasuredModel, batch: Batch) -> None:
        """Run the model, which is in evaluation mode, on a batch on its device, and `update` with the head's outputs on the
        CPU in fp32. A metric that needs more than these outputs overrides this."""
        if type(self).update is not Metric.update:
            self.take_outputs(model_outputs(model, batch), batch)

    def take_outputs(self, outputs: object, batch: Batch) -> None:
        """`update`, and count NaN."""
        self.check_nan(outputs)
        self.update(outputs, batch)

    def check_nan(self, outputs: object) -> None:
        """Count a batch if its outputs hold NaN, which sorting and argmax would hide."""
        tensors = (one for one in _pytree.tree_leaves(outputs) if isinstance(one, Tensor))
        self.nans += any(bool(one.isnan().any()) for one in tensors)

    def update(self, outputs: Any, batch: Batch) -> None:
        """Add the outputs of a batch; `batch.texts` are the examples of its rows."""

    def compute(self) -> dict[str, MetricValue]:
        """Return the metrics by name. Called once, after all batches."""
        return {}

    def results(self) -> dict[str, MetricValue]:
        """Return the metrics by name; all are NaN if any output was NaN."""
        if not self.nans:
            return self.compute()
        details = f"the model's outputs hold NaN, in {self.nans:,} batch{'es' if self.nans > 1 else ''}"
        return {name: MetricValue(math.nan, details) for name in self.compute()}

    def samples(self, count: int) -> list[dict[str, Any]]:
        """Return at most `count` outputs beside the truth: texts "source", "output" and "target", and perhaps a "picture".
        "graded" is true for numbers, which approach the truth rather than equal it.

        A picture is `{"kind": …}` with numbers and lists, drawn by the function registered for that kind (`look.pictures`).
        """
        return []

    def extremes(self) -> Extremes | None:
        """Return the examples with the best and the worst scores; None if there is no score of a single example."""
        return None

    def confusions(self) -> list[tuple[str, str, int]]:
        """Return, for classification, (true class, predicted class, number of examples) of each pair that occurred."""
        return []


def model_outputs(model: Callable[..., Any], batch: Batch) -> Any:
    """Run a model on a batch on its device, and return the head's outputs on the CPU in fp32."""
    return _pytree.tree_map_only(Tensor, _to_cpu, model(**batch.inputs))


def _to_cpu(tensor: Tensor) -> Tensor:
    return tensor.to("cpu", torch.float32) if tensor.is_floating_point() else tensor.cpu()
