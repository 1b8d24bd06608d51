"""Optimizers on one weight, by hand; imported by path."""

from __future__ import annotations

import torch
from torch import nn

from qkv.training.optimizers import Optimizer


def one_parameter(spec: Optimizer, weight: list, gradients: list[list]) -> list:
    """A weight after steps with given gradients."""
    model = nn.Module()
    model.weight = nn.Parameter(torch.tensor(weight))
    optimizer = spec.build(model)
    for gradient in gradients:
        model.weight.grad = torch.tensor(gradient)
        optimizer.step()
    return model.weight.tolist()
