"""What one step of training or evaluation is fed, and what it gives back: `Batch` in, named `Term`s out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .layout import Layout

IGNORE = -100  # a label that no loss counts


@dataclass(frozen=True, eq=False)
class Batch:
    """Tensors for one forward pass.

    inputs:   keyword arguments of the model's forward: `ids`, `layout`, `target`, `target_layout`, `token_types` …
    labels:   (B, T) int64, already aligned with the output (nothing downstream shifts them again); −100 is not counted.
    counts:   how many labels each named loss term will count; known here, before the forward pass.
    tokens:   real tokens (source and target) in the batch; `slots` counts padding too.
    position: JSON-able; a stream opened with it goes on with the batch after this one.
    texts:    the examples behind the rows, where evaluation needs them.
    """

    inputs: dict[str, Any]
    labels: Tensor | None = None
    counts: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    slots: int = 0
    position: dict[str, Any] = field(default_factory=dict)
    texts: tuple[dict[str, str], ...] = ()

    def to(self, device: torch.device | str) -> Batch:
        def move(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.to(device, non_blocking=True)
            return value.to(device) if isinstance(value, Layout) else value

        return replace(self, inputs={k: move(v) for k, v in self.inputs.items()}, labels=move(self.labels))


@dataclass(frozen=True, eq=False)
class Term:
    """One named part of a loss: its sum over what it counts, how many that is, and its weight in the whole.

    The loss of an optimizer step is Σ_terms weight · Σ_micro-batches,ranks sum ÷ Σ_micro-batches,ranks count, so
    accumulation, packing and ranks weigh every token alike. `value` is what to report where that differs from what is
    minimized (the plain log-likelihood under label smoothing).
    """

    sum: Tensor
    count: int
    weight: float = 1.0
    value: Tensor | None = None


Terms = dict[str, Term]
