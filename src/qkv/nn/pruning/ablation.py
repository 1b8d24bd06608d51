"""Importance of heads and layers by exact ablation: what the loss, or a metric, becomes without each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..activations import Zero, intervene
from .units import AttentionLayer

Evaluate = Callable[[nn.Module], float]
"""Something that is smaller for better models."""


@torch.no_grad()
def head_ablation(
    model: nn.Module,
    evaluate: Evaluate,
    layers: Mapping[str, AttentionLayer],
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Tensor]:
    """Return by how much `evaluate` grows without each head, for each layer. It runs once for each head, and once before."""
    whole = evaluate(model)
    result: dict[str, Tensor] = {}
    for name, layer in layers.items():
        losses = []
        for head in range(layer.n_heads):
            tell(f"{name}, head {head}")
            with intervene(model, {layer.site: Zero(heads=head)}):
                losses.append(evaluate(model) - whole)
        result[name] = torch.tensor(losses)
    return result


@torch.no_grad()
def layer_ablation(
    model: nn.Module,
    evaluate: Evaluate,
    counts: Mapping[str, int],
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Tensor]:
    """Return by how much `evaluate` grows without each layer of each stack: its output is its input then."""
    whole = evaluate(model)
    result: dict[str, Tensor] = {}
    for stack, count in counts.items():
        losses = []
        for i in range(count):
            tell(f"{stack}, layer {i}")
            inputs: list[Any] = []

            def keep(x: Tensor, inputs: list[Any] = inputs) -> Tensor:
                inputs[:] = [x]
                return x

            def skip(x: Tensor, inputs: list[Any] = inputs) -> Tensor:
                out: Tensor = inputs[0]
                return out

            with intervene(model, {f"{stack}.layers.{i}.input": keep, f"{stack}.layers.{i}.output": skip}):
                losses.append(evaluate(model) - whole)
        result[stack] = torch.tensor(losses)
    return result
