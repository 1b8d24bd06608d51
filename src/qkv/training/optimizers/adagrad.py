"""Adagrad, PyTorch's own."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from .base import Groups, NonNegative, Optimizer, Positive
from .weight_decay import Decoupled


class Adagrad(Optimizer, kind="adagrad"):
    """s ← s + g², w ← w − lr · g / (√s + ε) (Duchi, Hazan & Singer 2011): rates that only fall, fastest where gradients
    are large; for sparse features. s begins at `accumulator`. State: one number a parameter.
    """

    elementwise: ClassVar[bool] = True
    tuned_lr: ClassVar[float] = 1e-3

    lr: Positive = 0.01
    weight_decay: NonNegative = 0.0
    accumulator: NonNegative = 0.0
    eps: Positive = 1e-10

    @property
    def state_bytes(self) -> tuple[float, float]:
        return 4.0, 4.0

    def make(self, groups: Groups, model: nn.Module) -> torch.optim.Optimizer:
        # Not its fused kernel: that one counts a step which it was told to leave out.
        return DecoupledAdagrad(groups, lr=self.lr, initial_accumulator_value=self.accumulator, eps=self.eps)


class DecoupledAdagrad(Decoupled, torch.optim.Adagrad):
    """PyTorch's Adagrad with decoupled decay."""
