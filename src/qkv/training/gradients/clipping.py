"""Update the weights from the gradients of a step: gradient norm, NaN guard, clipping, optimizer step."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_

from ..mixed_precision import MixedPrecision
from ..strategy import Strategy


class Update(NamedTuple):
    """On the device: the gradients' norm before clipping, and whether the update was refused (1.0) or made (0.0)."""

    grad_norm: Tensor
    bad: Tensor


@torch.no_grad()
def update(
    optimizer: torch.optim.Optimizer,
    loss: Tensor,
    mixed: MixedPrecision,
    strategy: Strategy,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    empty: Tensor | None = None,
) -> Update:
    """Move the weights, unless the loss or any gradient is NaN or infinite, or the step is `empty`. The gradients are gone
    afterwards.

    The guard looks before the clipping, which would turn an infinite gradient into an honest-looking one. Clipping is
    by value (each gradient into ±clip_value), then by the norm over all parameters (g ← g · min(1, clip_norm / ‖g‖)).
    """
    parameters = strategy.reduce(optimizer)
    mixed.unscale(optimizer)
    grad_norm = norm = strategy.norm(parameters)
    sound = torch.isfinite(grad_norm) & torch.isfinite(loss)
    bad = 1.0 - (sound if empty is None else sound & ~empty).float()
    if clip_value is not None:
        if parameters:  # a rank of ZeRO 1 or 2 may own none
            clip_grad_value_(parameters, clip_value)
        norm = strategy.norm(parameters) if clip_norm is not None else norm
    if clip_norm is not None:
        clip_grads_with_norm_(parameters, clip_norm, norm)
    move(optimizer, bad)
    strategy.publish()
    mixed.adapt(optimizer, grad_norm)
    optimizer.zero_grad(set_to_none=True)
    return Update(grad_norm, bad)


def move(optimizer: torch.optim.Optimizer, bad: Tensor) -> None:
    """Step unless `bad`. Fused kernels read the flag on the device; for the others the host has to wait for it."""
    if all(group.get("fused") for group in optimizer.param_groups):
        optimizer.found_inf = bad  # type: ignore[attr-defined]
        optimizer.step()
    elif not bool(bad):
        optimizer.step()
