"""Adam with decoupled weight decay, PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn

from .base import Beta, Groups, Optimizer, Positive
from .state import Eager, eager

# Where one fused kernel updates all weights and can be told on the device to leave them (`found_inf`).
FUSED_DEVICES = frozenset({"cpu", "cuda"})


class AdamW(Optimizer, kind="adamw"):
    """Adam with decoupled decay (Loshchilov & Hutter 2019). The default betas are the Transformer paper's.

    m ← β₁m + (1 − β₁) g, v ← β₂v + (1 − β₂) g², w ← w − lr · m̂ / (√v̂ + ε) with m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ).
    State: two numbers a parameter.
    """

    elementwise: ClassVar[bool] = True

    betas: tuple[Beta, Beta] = (0.9, 0.98)
    eps: Positive = 1e-9

    def make(self, groups: Groups, model: nn.Module) -> torch.optim.Optimizer:
        return EagerAdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps, fused=fusable(model) or None)


_step = eager(torch.optim.AdamW.step)


class EagerAdamW(Eager, torch.optim.AdamW):
    """PyTorch's AdamW, its state made at once rather than at the first step."""

    def __init__(self, params: Groups, **options: Any) -> None:
        super().__init__(params, **options)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = {
                    "step": torch.zeros((), dtype=torch.float32, device=parameter.device if group["fused"] else "cpu"),
                    "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                    "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                }

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        return _step(self, closure)


def fusable(model: nn.Module) -> bool:
    """Whether every trainable parameter is where the fused kernels run."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    return all(p.device.type in FUSED_DEVICES and p.is_floating_point() for p in trainable)
