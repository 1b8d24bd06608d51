"""The processor, its instruction sets, memory and GPUs."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import torch

from ...nn.cost.hardware import available, cores
from ...training.mixed_precision import bf16_instructions, cpu_features
from .check import DoctorCheck, gigabytes

SECTION = "devices"
CPU_INFO = Path("/proc/cpuinfo")
NVIDIA_DRIVER = Path("/proc/driver/nvidia")
_LEAST_MEMORY = 2 * 2**30  # bytes


def checks() -> Iterator[DoctorCheck]:
    """Yield the processor, its vector instructions, bf16, memory, and the GPUs."""
    yield DoctorCheck(
        SECTION, "processor", f"{processor()}, {cores()} of {psutil.cpu_count() or 1} cores for this process"
    )
    yield _vectors()
    yield _bf16()
    yield _memory()
    yield from _gpus()


def processor() -> str:
    """The name of the processor's model."""
    try:
        lines = CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or _from_sysctl() or platform.processor() or platform.machine()


def _from_sysctl() -> str:
    if shutil.which("sysctl") is None or platform.system() != "Darwin":
        return ""
    command = ["sysctl", "-n", "machdep.cpu.brand_string"]
    return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout.strip()


def _vectors() -> DoctorCheck:
    used, features = torch.backends.cpu.get_cpu_capability(), cpu_features()
    chosen = os.environ.get("ATEN_CPU_CAPABILITY")
    name, value = "vector instructions", f"PyTorch uses {used}"
    if chosen and ("avx2" in features and used != "AVX512"):
        remedy = f"unset ATEN_CPU_CAPABILITY, which is {chosen!r}"
        return DoctorCheck(SECTION, name, f"{value}, as ATEN_CPU_CAPABILITY demands", "note", remedy)
    if platform.machine() in ("x86_64", "AMD64") and used == "DEFAULT":
        remedy = "use another machine; in a virtual machine, let the guest see the host's processor (`-cpu host`)"
        return DoctorCheck(
            SECTION, name, "neither AVX2 nor AVX-512: everything is several times slower", "note", remedy
        )
    return DoctorCheck(SECTION, name, value)


def _bf16() -> DoctorCheck:
    native = bf16_instructions(torch.device("cpu"))
    if native is not None:
        return DoctorCheck(SECTION, "bf16", f"native ({native})")
    value = "not native on this CPU: models of any width train in fp32"
    return DoctorCheck(
        SECTION, "bf16", value, "note", "wide models train faster on a GPU or a CPU with AVX-512 BF16 or AMX"
    )


def _memory() -> DoctorCheck:
    free, total = available(torch.device("cpu")) or 0, psutil.virtual_memory().total
    value = f"{gigabytes(free)} free of {gigabytes(total)}"
    if free >= _LEAST_MEMORY:
        return DoctorCheck(SECTION, "memory", value)
    remedy = "close other programs or raise the container's limit; `qkv cost fit NAME --memory SIZE` says what fits"
    return DoctorCheck(SECTION, "memory", value, "note", remedy)


def _gpus() -> Iterator[DoctorCheck]:
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        yield _gpu(i)
    if torch.backends.mps.is_available():
        yield DoctorCheck(SECTION, "GPU", f"{processor()} (mps)")
    elif not torch.cuda.is_available():
        yield _no_gpu()
    elif find_spec("triton") is None:
        value = "not installed: the kernels for FlashAttention and torch.compile are left out"
        yield DoctorCheck(SECTION, "Triton", value, "note", "pip install triton")


def _gpu(i: int) -> DoctorCheck:
    name = f"GPU cuda:{i}"
    try:
        free, total = torch.cuda.mem_get_info(i)
        torch.ones(8, device=f"cuda:{i}").sum().item()
    except RuntimeError as error:
        reason = str(error).strip().split("\n")[0]
        remedy = "`nvidia-smi` shows its state; a PyTorch for its generation and driver may be missing"
        return DoctorCheck(SECTION, name, f"{torch.cuda.get_device_name(i)} does not work: {reason}", "problem", remedy)
    value = f"{torch.cuda.get_device_name(i)}, {gigabytes(free)} free of {gigabytes(total)}"
    if free < total / 2:
        return DoctorCheck(SECTION, name, value, "note", "`nvidia-smi` shows the programs that hold its memory")
    return DoctorCheck(SECTION, name, value)


def _no_gpu() -> DoctorCheck:
    if not NVIDIA_DRIVER.exists():
        return DoctorCheck(SECTION, "GPU", "none")
    if torch.version.cuda is None:
        value = f"an NVIDIA GPU that PyTorch {torch.__version__}, built without CUDA, can't use"
        return DoctorCheck(
            SECTION, "GPU", value, "problem", "pip install --force-reinstall torch  (docs/installation.md)"
        )
    remedy = "`nvidia-smi` shows the driver and its state; CUDA_VISIBLE_DEVICES must not be empty"
    value = f"an NVIDIA GPU that PyTorch {torch.__version__} can't use"
    return DoctorCheck(SECTION, "GPU", value, "problem", remedy)
