"""The numbers that a step computes in: fp32, or bf16 and fp16 by autocast over fp32 weights."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn

Precision = Literal["fp32", "bf16", "fp16"]
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Mixed:
    """Autocast, and for fp16 the loss scale that keeps small gradients above fp16's least number.

    Raises ValueError where the device lacks the precision, or where the weights are not the fp32 masters that it needs.
    """

    def __init__(self, precision: Precision, model: nn.Module, device: torch.device) -> None:
        self.device, self.dtype = device, _DTYPES.get(precision)
        if self.dtype is not None:
            check_device(precision, device)
            check_masters(precision, model)
        self.scaler = torch.amp.GradScaler(device.type) if precision == "fp16" else None

    def autocast(self) -> AbstractContextManager[Any]:
        if self.dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    def backward(self, loss: Tensor) -> None:
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Bring the gradients back to the loss's own scale, so that they can be measured and clipped."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)

    def adapt(self) -> None:
        """Halve the scale after an overflow, double it after a long time without."""
        if self.scaler is not None:
            self.scaler.update()

    @property
    def scaling(self) -> bool:
        """Whether a gradient that overflows may still be the scale's fault. Waits for the device."""
        return self.scaler is not None and self.scaler.get_scale() >= 1.0

    def state(self) -> dict[str, Any]:
        return {} if self.scaler is None else self.scaler.state_dict()

    def load(self, state: dict[str, Any]) -> None:
        if self.scaler is not None and state:
            self.scaler.load_state_dict(state)


def check_device(precision: Precision, device: torch.device) -> None:
    lacks = not torch.amp.is_autocast_available(device.type)
    if device.type == "cuda" and precision == "bf16":
        lacks = not torch.cuda.is_bf16_supported(including_emulation=False)
    if lacks:
        raise ValueError(f"the device {device} has no {precision}; train with precision=fp32 there")


def check_masters(precision: Precision, model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            kind = str(parameter.dtype).removeprefix("torch.")
            raise ValueError(f"{precision} training keeps its weights in float32, but {name} is {kind}")
