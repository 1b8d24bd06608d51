"""Decoupled weight decay for PyTorch optimizers that add it to the gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .state import Eager, eager


class Decoupled(Eager):
    """Stands before an optimizer of PyTorch's in a class's bases, and gives it w ← (1 − lr · λ) w before its own step."""

    found_inf: Tensor | None = None  # 1.0 on the device where this step shall change nothing

    def __init__(self, params: list[dict[str, Any]], **options: Any) -> None:
        super().__init__(params, **options)
        for group in self.param_groups:
            group["decoupled_decay"], group["weight_decay"] = group["weight_decay"], 0.0

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        for group in self.param_groups:
            if group["decoupled_decay"]:
                shrink = group["lr"] * group["decoupled_decay"]
                keep = 1.0 - (shrink if self.found_inf is None else shrink * (1.0 - self.found_inf))
                torch._foreach_mul_([p for p in group["params"] if p.grad is not None], keep)
        return eager(super().step)(self, closure)
