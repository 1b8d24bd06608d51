"""Speed measured here: matrix products and reading memory, against what the hardware should reach."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import torch

from ...core.device import choose
from ...nn.cost.accelerators import KNOWN, bandwidth
from ...nn.cost.throughput import peak_flops
from ...training.mixed_precision import bf16_instructions
from . import threads
from .check import DoctorCheck

SECTION = "speed"

# fp32 operations per core and cycle: two fused multiply-adds on vectors of 256 bits, as every core with AVX2 has. With
# vectors of 512 bits some cores do twice that, others the same.
_PER_CYCLE = {"AVX512": 32, "AVX2": 32}
_OTHERWISE = 8
_SHARE = 0.4  # of the expected speed, below which a product is slow
_LEAST_BANDWIDTH = 5e9  # bytes per second of a usual memory, with one thread
_SMALL = 124e6  # parameters of GPT-2


def checks(seconds_of_import: float | None = None) -> Iterator[DoctorCheck]:
    """Yield the time to import PyTorch, if it was measured, products in fp32 and bf16, and memory bandwidth.

    Takes about four seconds on a CPU.
    """
    if seconds_of_import is not None:
        yield _import(seconds_of_import)
    cpu = torch.device("cpu")
    fp32, bf16 = (peak_flops(cpu, dtype) for dtype in (torch.float32, torch.bfloat16))
    yield _product(fp32, expected_flops())
    if bf16_instructions(cpu) is not None:
        yield _bf16(bf16, fp32)
    yield _memory(bandwidth(cpu))
    if choose("auto").type == "cuda":
        yield _gpu(torch.device("cuda"))


def expected_flops() -> float | None:
    """fp32 operations per second that this CPU should reach: cores × clock × operations of a cycle; None for other CPUs."""
    clock = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    if clock is None or not clock.current:
        return None
    per_cycle = _PER_CYCLE.get(torch.backends.cpu.get_cpu_capability(), _OTHERWISE)
    cores = min(torch.get_num_threads(), threads.usable_cores())
    return cores * clock.current * 1e6 * per_cycle


def _import(seconds: float) -> DoctorCheck:
    value = f"{seconds:.1f} s"
    if seconds < 10 or threads.is_busy():
        return DoctorCheck(SECTION, "import of PyTorch", value)
    remedy = "install the environment on a local disk; the second start of the day is faster"
    return DoctorCheck(SECTION, "import of PyTorch", f"{value}: slow disk", "note", remedy)


def _product(flops: float, expected: float | None) -> DoctorCheck:
    count = torch.get_num_threads()
    name, value = "fp32 products", f"{flops / 1e9:,.0f} GFLOP/s with {count} thread{'s' * (count > 1)}"
    if expected is None:
        return DoctorCheck(SECTION, name, value)
    value += f"; about {expected / 1e9:,.0f} expected of this CPU"
    if flops >= _SHARE * expected:
        return DoctorCheck(SECTION, name, value)
    return DoctorCheck(SECTION, name, value, "note", _why())


def _why() -> str:
    if threads.is_busy():
        return "other programs use the cores: run `qkv doctor` again when they have ended"
    return "the CPU may be throttled by heat or a power plan, or shared with other virtual machines: run it again later"


def _bf16(bf16: float, fp32: float) -> DoctorCheck:
    value = f"{bf16 / 1e9:,.0f} GFLOP/s, {bf16 / fp32:.1f} times fp32"
    if bf16 >= fp32 or threads.is_busy():
        return DoctorCheck(SECTION, "bf16 products", value)
    return DoctorCheck(SECTION, "bf16 products", value, "note", "train with training.precision=fp32 on this CPU")


def _memory(speed: float) -> DoctorCheck:
    tokens = speed / (4 * _SMALL)
    value = f"{speed / 1e9:,.1f} GB/s read: at most {tokens:,.0f} tokens/s from a model of GPT-2's size in fp32"
    if speed >= _LEAST_BANDWIDTH:
        return DoctorCheck(SECTION, "memory", value)
    return DoctorCheck(SECTION, "memory", value, "note", _why())


def _gpu(device: torch.device) -> DoctorCheck:
    speed, read = peak_flops(device, torch.bfloat16), bandwidth(device)
    value = f"{speed / 1e12:,.0f} TFLOP/s in bf16, {read / 1e9:,.0f} GB/s read"
    model = torch.cuda.get_device_name(device).lower()
    known = next((one for name, one in KNOWN.items() if name in model.replace("-", " ").split()), None)
    if known is None:
        return DoctorCheck(SECTION, "GPU", value)
    value += f"; its data sheet says {known.peak('bf16') / 1e12:,.0f} and {known.bandwidth / 1e9:,.0f}"
    if speed >= _SHARE * known.peak("bf16"):
        return DoctorCheck(SECTION, "GPU", value)
    return DoctorCheck(
        SECTION, "GPU", value, "note", "`nvidia-smi` shows whether other programs use it, and its power limit"
    )
