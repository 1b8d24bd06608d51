"""Attention weights of one forward pass, computed afterwards from the requests that a tap recorded.

The pass itself runs as usual, with fused kernels; only the requested layers, heads and rows cost extra.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..core.several import worded
from ..nn.attention import tap
from ..nn.kernels.request import Request

Choice = Callable[[Request], bool]


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """Attention weights of one layer: `weights[b, h, t, s]` is the weight of key s for query t in head h."""

    name: str
    weights: Float[Tensor, "B H T S"]

    def mean(self) -> Float[Tensor, "B T S"]:
        """Return the mean over heads."""
        return self.weights.mean(1)


def cross(request: Request) -> bool:
    """Choose cross-attention layers, in which a decoder attends to its source."""
    return "cross" in request.name.split(".")


def own(request: Request) -> bool:
    """Choose self-attention layers."""
    return not cross(request)


@worded
def attention(
    model: nn.Module,
    *args: object,
    choose: Choice | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    **inputs: object,
) -> list[AttentionMap]:
    """Run `model(*args, **inputs)` and return the attention of every layer that `choose` accepts, in order.

    `heads` and `rows` select what is computed. The model runs in evaluation mode without gradients; its mode is restored.
    """
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), tap.record_attention() as requests:
            model(*args, **inputs)
        chosen = [r for r in requests if choose is None or choose(r)]
        return [AttentionMap(r.name, tap.weights(r, heads, rows).float().cpu()) for r in chosen]
    finally:
        model.train(training)
