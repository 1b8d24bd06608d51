"""Lion: the sign of a momentum."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from .base import Beta, Groups, NonNegative, Optimizer, Positive
from .state import Group, Stateful, shrink


class Lion(Optimizer, kind="lion"):
    """w ← w − lr · sign(β₁m + (1 − β₁) g), then m ← β₂m + (1 − β₂) g (Chen et al. 2023, algorithm 2).

    Every weight moves by lr, so lr is 3 to 10 times smaller than AdamW's, and the decay that much larger. State: one
    number a parameter.
    """

    elementwise: ClassVar[bool] = True
    tuned_lr: ClassVar[float] = 1e-5

    lr: Positive = 1e-4
    weight_decay: NonNegative = 0.1
    betas: tuple[Beta, Beta] = (0.9, 0.99)

    @property
    def state_bytes(self) -> tuple[float, float]:
        return 4.0, 4.0

    def make(self, groups: Groups, model: nn.Module) -> torch.optim.Optimizer:
        return SignMomentum(groups, lr=self.lr, betas=self.betas)


class SignMomentum(Stateful):
    """The optimizer object of `Lion`."""

    def initial(self, parameter: Tensor, group: Group) -> dict[str, Tensor]:
        return {"exp_avg": torch.zeros_like(parameter)}

    def move(self, group: Group, parameters: list[Tensor], gradients: list[Tensor]) -> None:
        beta1, beta2 = group["betas"]
        averages = [self.state[parameter]["exp_avg"] for parameter in parameters]
        updates = torch._foreach_lerp(averages, gradients, 1.0 - beta1)
        torch._foreach_sign_(updates)
        torch._foreach_lerp_(averages, gradients, 1.0 - beta2)
        shrink(group, parameters)
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])
