"""Mixed precision: fp32, or bf16 and fp16 by autocast over fp32 weights, and the choice among them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

Precision = Literal["fp32", "bf16", "fp16"]
PrecisionChoice = Literal["auto", "fp32", "bf16", "fp16"]
DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

# Narrower models are no faster in bf16 than in fp32 on a CPU (docs/machine.md).
LEAST_WIDTHS = {"amx_bf16": 128, "avx512_bf16": 128}  # by instruction set
LEAST_WIDTH = 256  # for the others

CPU_INFO = Path("/proc/cpuinfo")

# The fastest first. AMX multiplies tiles, AVX-512 and Arm's extensions multiply pairs within a vector.
_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "sve_bf16", "svebf16", "bf16")


class Chosen(NamedTuple):
    """A precision and the reason for its choice; "" if it was given."""

    precision: Precision
    why: str = ""


def choose(wanted: PrecisionChoice, device: torch.device, d_model: int | None) -> Chosen:
    """`auto` is bf16 if the device computes it natively and the model is wide enough to gain by it, else fp32.

    The choice depends on these three alone, so it is the same every time. `d_model` None is a model of unknown width,
    which stays in fp32.
    """
    if wanted != "auto":
        return Chosen(wanted)
    native = bf16_instructions(device)
    if native is None:
        return Chosen("fp32", f"{_named(device)} has no native bf16")
    least = LEAST_WIDTHS.get(native, LEAST_WIDTH)
    if device.type == "cpu" and (d_model is None or d_model < least):
        width = "of unknown width" if d_model is None else f"of width {d_model}"
        return Chosen("fp32", f"a model {width}, below {least}, is no faster in bf16 on a CPU")
    return Chosen("bf16", f"{_named(device)} has it natively ({native})")


def slow(precision: Precision, device: torch.device) -> str | None:
    """One sentence if a device has no instructions for a precision and computes it by detours, else None."""
    if precision == "fp16" and device.type == "cpu":
        return "fp16 is slower than fp32 on a CPU and needs its loss scaled; bf16 or fp32 is the better choice there"
    if precision == "bf16" and device.type in ("cpu", "cuda") and bf16_instructions(device) is None:
        return f"{_named(device)} has no native bf16 and emulates it, slower than fp32; fp32 is the better choice there"
    return None


def _named(device: torch.device) -> str:
    return {"cpu": "this CPU", "cuda": "this GPU"}.get(device.type, f"the device {device.type}")


class LossScale(torch.amp.GradScaler):
    """PyTorch's `GradScaler`, which follows the overflows of all ranks, not only of the gradients that this rank
    updates. A rank without the loss, in a pipeline, has it too."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device.type)
        self._lazy_init_scale_growth_tracker(device)

    def follow(self, optimizer: torch.optim.Optimizer, overflow: Tensor) -> None:
        """Halve the scale after an overflow (1.0 in place of 0.0) on any rank, double it after a long time without."""
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = {overflow.device: overflow}
        self.update()


class MixedPrecision:
    """Autocast, and for fp16 the loss scale that keeps small gradients above fp16's least number.

    Raises ValueError if the device lacks the precision, or if the weights are not the fp32 masters that it needs.
    """

    def __init__(self, wanted: PrecisionChoice, model: nn.Module, device: torch.device) -> None:
        self.precision = _of(wanted, model, device)
        self.device, self.dtype = device, autocast_dtype(wanted, model, device)
        if self.dtype is not None:
            check_device(self.precision, device)
            check_masters(self.precision, model)
        self.scaler = LossScale(device) if self.precision == "fp16" else None

    def autocast(self) -> AbstractContextManager[Any]:
        if self.dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    def backward(self, loss: Tensor) -> None:
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Bring the gradients back to the loss's own scale, so they can be measured and clipped."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)

    def adapt(self, optimizer: torch.optim.Optimizer, grad_norm: Tensor) -> None:
        """Adapt the loss scale to the norm of the gradients of all ranks, which is not finite after an overflow."""
        if self.scaler is not None:
            self.scaler.follow(optimizer, 1.0 - torch.isfinite(grad_norm).float())

    @property
    def scaling(self) -> bool:
        """Whether a gradient that overflows may still be the scale's fault. Waits for the device."""
        return self.scaler is not None and self.scaler.get_scale() >= 1.0

    def state(self) -> dict[str, Any]:
        return {} if self.scaler is None else self.scaler.state_dict()

    def load(self, state: dict[str, Any]) -> None:
        if self.scaler is not None and state:
            self.scaler.load_state_dict(state)


def _of(wanted: PrecisionChoice, model: nn.Module, device: torch.device) -> Precision:
    return choose(wanted, device, getattr(getattr(model, "spec", None), "d_model", None)).precision


def autocast_dtype(wanted: PrecisionChoice, model: nn.Module, device: torch.device) -> torch.dtype | None:
    """The dtype of autocast in a precision; None for fp32, which has none."""
    precision = _of(wanted, model, device)
    return None if precision == "fp32" else DTYPES[precision]


def check_device(precision: Precision, device: torch.device) -> None:
    """That the device can compute so at all, be it slowly. Raises ValueError."""
    if precision == "fp32":
        return
    lacks = not torch.amp.is_autocast_available(device.type)
    if device.type == "cuda" and precision == "bf16":
        lacks = not torch.cuda.is_bf16_supported(including_emulation=True)
    if lacks:
        raise ValueError(f"the device {device} has no {precision}; train with precision=fp32 there")


def check_masters(precision: Precision, model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            kind = str(parameter.dtype).removeprefix("torch.")
            raise ValueError(f"{precision} training keeps its weights in float32, but {name} is {kind}")


@lru_cache(maxsize=8)
def bf16_instructions(device: torch.device) -> str | None:
    """What makes bf16 native on a device, such as `amx_bf16` or `compute capability 9.0`; None if nothing does.

    On CPUs oneDNN has to be there too: without it PyTorch multiplies bf16 matrices element by element. GPUs have it from
    NVIDIA's compute capability 8.0 on, and on AMD's with ROCm. Apple's GPUs count as without, not having been measured.
    """
    if device.type == "cpu":
        found = cpu_features() & set(_INSTRUCTIONS)
        usable = found and torch.backends.mkldnn.is_available()
        return next(name for name in _INSTRUCTIONS if name in found) if usable else None
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        major, minor = torch.cuda.get_device_capability(device)
        return f"compute capability {major}.{minor}"
    return None


def cpu_features() -> set[str]:
    """The names of what a CPU can do: PyTorch's own look at it, if this version has one, and the Linux kernel's."""
    asked: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    named = {name for name, value in asked.items() if value is True}
    try:
        lines = CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return named
    listed = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return named | set(listed.partition(":")[2].split())
