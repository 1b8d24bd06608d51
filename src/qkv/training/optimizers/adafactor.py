"""Adafactor: second moments kept as a row and a column for each matrix."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from .base import Beta, Groups, NonNegative, Optimizer, Positive
from .state import Group, Stateful, counter, shrink


class Adafactor(Optimizer, kind="adafactor"):
    """Steps like Adam's, with the second moments of a matrix (m, n) stored in m + n numbers (Shazeer & Stern 2018).

    With means over G² + ε₁, and β₂ = 1 − t^(−`decay_power`):

        r ← β₂ r + (1 − β₂) · mean over columns,  c ← β₂ c + (1 − β₂) · mean over rows,  V̂ = r cᵀ / mean(r)
        U = G / √V̂,  Û = U / max(1, RMS(U) / clip),  w ← w − α Û

    α is lr, times max(ε₂, RMS(w)) if `scale_parameter`: a step relative to the weights' size, the paper's default. With
    `relative_step`, lr is only the upper limit of the paper's own schedule 1/√t. `beta1` above 0 adds momentum over αÛ,
    at one number per parameter. Vectors keep the whole V; stacks of matrices are factored over their last two axes.
    """

    tuned_lr: ClassVar[float] = 1e-3

    lr: Positive = 1e-2
    weight_decay: NonNegative = 0.0
    scale_parameter: bool = True
    relative_step: bool = False
    beta1: Beta = 0.0
    decay_power: Positive = 0.8
    clip: Positive = 1.0
    eps: tuple[Positive, Positive] = (1e-30, 1e-3)

    @property
    def state_bytes(self) -> tuple[float, float]:
        return (4.0, 4.0) if self.beta1 else (0.0, 0.0)

    def make(self, groups: Groups, model: nn.Module) -> torch.optim.Optimizer:
        names = ("scale_parameter", "relative_step", "beta1", "decay_power", "clip", "eps")
        return FactoredMoments(groups, lr=self.lr, **{name: getattr(self, name) for name in names})


class FactoredMoments(Stateful):
    """The optimizer object of `Adafactor`."""

    def initial(self, parameter: Tensor, group: Group) -> dict[str, Tensor]:
        shape = parameter.shape
        state = {"step": counter()}
        if parameter.ndim >= 2:
            state |= {"row": parameter.new_zeros(shape[:-1]), "column": parameter.new_zeros(shape[:-2] + shape[-1:])}
        else:
            state["square"] = torch.zeros_like(parameter)
        return state | ({"momentum": torch.zeros_like(parameter)} if group["beta1"] else {})

    def move(self, group: Group, parameters: list[Tensor], gradients: list[Tensor]) -> None:
        # The rate is relative to the weights before they decay.
        updates = [self._update(group, *pair) for pair in zip(parameters, gradients, strict=True)]
        shrink(group, parameters)
        torch._foreach_sub_(parameters, updates)

    def _update(self, group: Group, parameter: Tensor, gradient: Tensor) -> Tensor:
        """αÛ, or its momentum."""
        state = self.state[parameter]
        state["step"] += 1
        step = float(state["step"])
        beta2 = 1.0 - step ** -group["decay_power"]
        update = gradient * inverse_root(state, gradient.square() + group["eps"][0], beta2)
        update /= (rms(update) / group["clip"]).clamp(min=1.0)
        rate = min(group["lr"], group["scale"] / step**0.5) if group["relative_step"] else group["lr"]
        update *= rate * rms(parameter).clamp(min=group["eps"][1]) if group["scale_parameter"] else rate
        if not group["beta1"]:
            return update
        return state["momentum"].lerp_(update, 1.0 - group["beta1"])


def inverse_root(state: dict[str, Tensor], square: Tensor, beta2: float) -> Tensor:
    """1 / √V̂ after the averages took in the new squares."""
    if "square" in state:
        return state["square"].lerp_(square, 1.0 - beta2).rsqrt()
    row = state["row"].lerp_(square.mean(-1), 1.0 - beta2)
    column = state["column"].lerp_(square.mean(-2), 1.0 - beta2)
    return (row / row.mean(-1, keepdim=True)).rsqrt().unsqueeze(-1) * column.rsqrt().unsqueeze(-2)


def rms(x: Tensor) -> Tensor:
    """The root of the mean square, a scalar."""
    return x.square().mean().sqrt()
