"""Peak speed, memory and bandwidth of accelerators, by name, by description, or measured on this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import torch

from ...core.several import shown
from ...core.spec import brief, nearest
from .hardware import available
from .throughput import peak_flops

THIS = "this"


@dataclass(frozen=True)
class Accelerator:
    """One device.

    flops:     operations per second of dense matrix products by precision: fp32, bf16, fp8, int8 …
    bandwidth: bytes per second from its main memory. memory: its size in bytes.
    watts:     power under load. price: dollars per hour, a usual one of the cloud; None if unknown.
    sram:      bytes of the fast memory of one multiprocessor (L1 and shared); None if unknown.
    """

    name: str
    flops: Mapping[str, float]
    bandwidth: float
    memory: float
    watts: float | None = None
    price: float | None = None
    sram: float | None = None

    def peak(self, precision: str) -> float:
        """Operations per second in a precision, or in the next wider one if it has no units for it."""
        order = ("int8", "fp8", "bf16", "tf32", "fp32")
        wider = order[order.index(precision) :] if precision in order else order[2:]
        known = next((self.flops[name] for name in wider if name in self.flops), None)
        return max(self.flops.values()) if known is None else known

    def ridge(self, precision: str) -> float:
        """FLOPs per byte from which on a computation is bound by arithmetic (Williams et al. 2009)."""
        return self.peak(precision) / self.bandwidth


# From the vendors' data sheets, dense (without sparsity): NVIDIA A100 80GB SXM, H100 SXM, H200 SXM, B200, RTX 4090; Apple M4
# (10-core GPU); fast memory from the architectures' white papers. Prices are usual ones on demand in 2026, for orders of
# magnitude.
KNOWN = {
    one.name: one
    for one in (
        Accelerator(
            "a100",
            {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "int8": 624e12},
            *(2.039e12, 80e9, 400, 1.8, 192 * 1024),
        ),
        Accelerator(
            "h100",
            {"fp32": 67e12, "tf32": 494.7e12, "bf16": 989.4e12, "fp8": 1978.9e12, "int8": 1978.9e12},
            *(3.35e12, 80e9, 700, 2.5, 256 * 1024),
        ),
        Accelerator(
            "h200",
            {"fp32": 67e12, "tf32": 494.7e12, "bf16": 989.4e12, "fp8": 1978.9e12, "int8": 1978.9e12},
            *(4.8e12, 141e9, 700, 3.5, 256 * 1024),
        ),
        Accelerator(
            "b200",
            {"fp32": 75e12, "tf32": 1100e12, "bf16": 2250e12, "fp8": 4500e12, "int8": 4500e12},
            *(7.7e12, 180e9, 1000, 5.0, 256 * 1024),
        ),
        Accelerator(
            "4090",
            {"fp32": 82.6e12, "bf16": 165.2e12, "fp8": 330.3e12, "int8": 660.6e12},
            *(1.008e12, 24e9, 450, 0.4, 128 * 1024),
        ),
        Accelerator("m4", {"fp32": 4.26e12}, 120e9, 32e9, 22),
        # With 9.5 TFLOP/s, as Vaswani et al. (2017) count it.
        Accelerator("p100", {"fp32": 9.5e12}, 732e9, 16e9, 300, None, 64 * 1024),
    )
}


def accelerator(given: str | Mapping[str, Any], device: torch.device | None = None) -> Accelerator:
    """Return a device by its name, `this` machine's measured, or one described by its fields.

    Raises ValueError for an unknown name or field, with an example of a description.
    """
    if isinstance(given, str):
        if given == THIS:
            return measured(device or torch.device("cpu"))
        if given not in KNOWN:
            raise ValueError(
                f"there is no hardware {brief(given)}; {nearest(given, [*KNOWN, THIS])}; or describe it: "
                '--hardware \'{"bf16": 1e15, "bandwidth": 3e12, "memory": 80e9}\''
            )
        return KNOWN[given]
    if not isinstance(given, Mapping):
        raise ValueError(f"hardware is a name or a dictionary of its fields, not {shown(given)}")
    return _described(given)


def _described(given: Mapping[str, Any]) -> Accelerator:
    named = {field.name for field in fields(Accelerator)} - {"flops"}
    precisions = ("fp32", "tf32", "bf16", "fp8", "int8")
    unknown = next((key for key in given if key not in (*named, *precisions)), None)
    if unknown is not None:
        raise ValueError(f"hardware has no {brief(unknown)}; {nearest(unknown, [*sorted(named), *precisions])}")
    numbers = {key: value for key, value in given.items() if key != "name"}
    wrong = next(
        (k for k, v in numbers.items() if isinstance(v, bool) or not isinstance(v, int | float) or v <= 0), None
    )
    if wrong is not None:
        raise ValueError(f"{wrong} of the hardware is a positive number, not {brief(numbers[wrong])}")
    missing = next((key for key in ("bandwidth", "memory") if key not in given), None)
    if missing is not None or not set(given) & set(precisions):
        raise ValueError(
            f"hardware needs {missing or 'a speed such as bf16'}: operations and bytes per second, and bytes"
        )
    flops = {key: float(given[key]) for key in precisions if key in given}
    rest = {key: given[key] for key in named if key in given}
    return Accelerator(**{"name": "described", **rest}, flops=flops)


@lru_cache(maxsize=4)
def measured(device: torch.device, narrow: bool = True) -> Accelerator:
    """Measure this machine in a few seconds: a large product in fp32 and, if `narrow`, in bf16, and reading memory far
    beyond the caches."""
    flops = {"fp32": peak_flops(device, torch.float32)}
    if narrow:
        flops["bf16"] = peak_flops(device, torch.bfloat16)
    return Accelerator(THIS, flops, bandwidth(device), float(available(device) or 0))


def bandwidth(device: torch.device) -> float:
    """Measure the bytes per second of reading memory: the best of several sums over a quarter of a gigabyte."""
    numbers = torch.ones(1 << 26, device=device)
    best = 0.0
    for _ in range(8):
        start = time.perf_counter()
        numbers.sum().item()
        best = max(best, numbers.nbytes / (time.perf_counter() - start))
    return best
