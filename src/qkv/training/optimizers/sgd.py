"""Stochastic gradient descent, PyTorch's own."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from .adamw import fusable
from .base import Beta, Groups, NonNegative, Optimizer, Positive
from .weight_decay import Decoupled


class SGD(Optimizer, kind="sgd"):
    """Stochastic gradient descent with momentum μ: v ← μv + g, w ← w − lr · v (Nesterov: w ← w − lr · (g + μv)).

    State: one number a parameter, none without momentum.
    """

    elementwise: ClassVar[bool] = True
    tuned_lr: ClassVar[float] = 1e-2

    lr: Positive = 0.1
    weight_decay: NonNegative = 0.0
    momentum: Beta = 0.9
    nesterov: bool = False

    @property
    def state_bytes(self) -> tuple[float, float]:
        return (4.0, 4.0) if self.momentum else (0.0, 0.0)

    def make(self, groups: Groups, model: nn.Module) -> torch.optim.Optimizer:
        if self.nesterov and not self.momentum:
            raise ValueError("Nesterov's step needs a momentum above 0")
        return DecoupledSGD(
            groups, lr=self.lr, momentum=self.momentum, nesterov=self.nesterov, fused=fusable(model) or None
        )


class DecoupledSGD(Decoupled, torch.optim.SGD):
    """PyTorch's SGD with decoupled decay, which can be told on the device to leave the weights alone."""

    def __init__(self, params: Groups, **options: Any) -> None:
        super().__init__(params, **options)
        for group in self.param_groups:
            # PyTorch makes these at the first step, uninitialized where that step is skipped; zeros mean the same.
            for parameter in group["params"] if group["momentum"] else ():
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
