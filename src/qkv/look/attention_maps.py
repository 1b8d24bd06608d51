"""Attention weights of one pass through a model, computed afterwards from what a tap recorded.

The pass itself runs as always, fused kernels included; only the layers, heads and rows asked for cost anything more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..attention import tap
from ..kernels.request import Request

Choice = Callable[[Request], bool]


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """One layer's attention: `weights[b, h, t, s]`, how much of query t's attention head h gives to key s."""

    name: str
    weights: Float[Tensor, "B H T S"]

    def mean(self) -> Float[Tensor, "B T S"]:
        """Averaged over heads."""
        return self.weights.mean(1)


def cross(request: Request) -> bool:
    """Chooses the layers in which a decoder looks at its source."""
    return "cross" in request.name.split(".")


def own(request: Request) -> bool:
    """Chooses the layers in which tokens look at their own sequence."""
    return not cross(request)


def attention(
    model: nn.Module,
    *args: Any,
    choose: Choice | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    **inputs: Any,
) -> list[AttentionMap]:
    """Run `model(*args, **inputs)` and return the attention of every layer that `choose` accepts, in order.

    `heads` and `rows` limit what is computed. The model is looked at as it is used: without dropout, without gradients;
    its mode is put back afterwards.
    """
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), tap.record() as requests:
            model(*args, **inputs)
        wanted = [r for r in requests if choose is None or choose(r)]
        return [AttentionMap(r.name, tap.weights(r, heads, rows).float().cpu()) for r in wanted]
    finally:
        model.train(training)
