"""Importance of heads and neurons by one backward pass: |∂L/∂ξ| (Michel, Levy & Neubig 2019, §4.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from ...core.batch import Batch
from ..activations import intervene

Loss = Callable[[nn.Module, Batch], Tensor]
"""The summed loss of a batch, to which each row contributes its own."""


def gradient_importance(
    model: nn.Module, batches: Iterable[Batch], loss: Loss, names: Mapping[str, str]
) -> dict[str, Tensor]:
    """Return the importance of each head or neuron of each layer: I_h = E_x |∂L(x)/∂ξ_h| = E_x |Σ_t x_hᵗ · ∂L/∂x_hᵗ|.

    ξ_h multiplies the output of the unit and is 1: to first order, I_h is what removing it costs. `names` are names of
    activations (`nn.activations`) by layer: `…heads` (B, T, H, E) or `…neurons` (B, T, F). The mean is over rows.

    Raises ValueError if there is no batch.
    """
    sums: dict[str, Tensor] = {}
    rows = 0
    training = model.training
    model.eval()
    try:
        for batch in batches:
            factors: dict[str, list[Tensor]] = {layer: [] for layer in names}
            changes = {name: _times_one(factors[layer]) for layer, name in names.items()}
            with torch.enable_grad(), intervene(model, changes):
                total = loss(model, batch)
            drawn = [(layer, factor) for layer, several in factors.items() for factor in several]
            gradients = torch.autograd.grad(total, [factor for _, factor in drawn], materialize_grads=True)
            rows += max(len(factor) for _, factor in drawn)
            for (layer, _), gradient in zip(drawn, gradients, strict=True):
                each = gradient.flatten(1).double().abs().sum(0)
                sums[layer] = sums.get(layer, 0) + each
    finally:
        model.train(training)
    if not rows:
        raise ValueError("there are no examples to measure importance on; give data")
    return {layer: (total / rows).float().cpu() for layer, total in sums.items()}


def normalized(importance: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Divide the importance of each layer by its ℓ₂ norm, so layers can be compared (§4.1)."""
    return {layer: value / value.norm().clamp(min=1e-12) for layer, value in importance.items()}


def _times_one(factors: list[Tensor]) -> Callable[[Tensor], Tensor]:
    """Multiply an activation by ones, one for each row and unit, that are kept for their gradients."""

    def change(x: Tensor) -> Tensor:
        by_head = x.ndim == 4
        shape = (len(x), 1, x.shape[2], 1) if by_head else (len(x), 1, x.shape[2])
        factors.append(torch.ones(shape, dtype=x.dtype, device=x.device, requires_grad=True))
        return x * factors[-1]

    return change
