"""torch.compile: predict whether a training is long enough to gain by it, and check for a compiler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from ..nn.kernels.products import onednn
from .logging.progress_bar import span

# Speedup of a step if all batches have the same shape, without and with gated feed-forward layers, whose element-wise
# operations are fused. For CPUs as measured in bf16 (bench/performance-tables.md); for GPUs as torchtitan reports for Llama
# 3.1 8B on an H100 (5,762 tokens per second eager, 6,667 compiled). For other devices no speedup is assumed.
GAIN = {"cpu": (1.0, 1.15), "cuda": (1.05, 1.15)}

# Seconds until compiled steps run: a graph for full rows and one for padded ones, each through all layers.
FIXED_SECONDS, SECONDS_A_LAYER = 20.0, 8.0

MARGIN = 3.0  # predictions of time are good within a factor of two, so compiling has to promise more than that


def compiled(model: nn.Module, device: torch.device) -> nn.Module:
    """The model behind torch.compile. Raises ValueError if code can't be built here."""
    check_compiler(device)
    return cast(nn.Module, torch.compile(model))


def check_compiler(device: torch.device) -> None:
    """Raise ValueError if what Inductor writes can't be compiled: C++ for CPUs, Triton for CUDA."""
    lacks = missing_compiler(device)
    if lacks is not None:
        raise ValueError(f"training.compile needs {lacks}, or leave compile off")


def missing_compiler(device: torch.device) -> str | None:
    """What compiling needs and this machine lacks, with what to do about it; None if nothing is missing."""
    if device.type == "cpu" and not _has_cpp():
        return "a C++ compiler, and none was found; install g++ or clang"
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            return "Triton, and it was not found; install triton"
    return None


def _has_cpp() -> bool:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError, OSError):
        return False
    return True


@dataclass(frozen=True)
class Payoff:
    """What compiling would cost and save in a run, in seconds, as predicted before it."""

    cost: float
    saved: float
    run: float

    @property
    def pays(self) -> bool:
        return self.saved >= MARGIN * self.cost

    def __str__(self) -> str:
        return f"about {span(self.cost)} now, saves about {span(self.saved)} of {span(self.run)}"


def payoff(
    run: float, layers: int, device: torch.device, one_shape: bool, gated: bool = False, precision: str = "bf16"
) -> Payoff:
    """Of a run that takes `run` seconds uncompiled, by a model of so many layers, with `gated` feed-forward or without.

    saved = run · (1 − 1/gain). Batches of many shapes gain nothing: the code that serves them all is as slow as
    PyTorch's own, or slower, and takes several times as long to make. Neither does fp32 if oneDNN multiplies faster
    than MKL, which compiled code calls.
    """
    by_mkl = device.type == "cpu" and precision == "fp32" and onednn.is_faster()
    gain = GAIN.get(device.type, (1.0, 1.0))[gated] if one_shape and not by_mkl else 1.0
    return Payoff(FIXED_SECONDS + SECONDS_A_LAYER * layers, run * (1 - 1 / gain), run)
