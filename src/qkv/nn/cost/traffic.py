"""Bytes that attention moves between a device's memory and its chip: with scores written out, and in tiles.

Of one head's forward pass over N queries and keys of width d, in numbers; M is the fast memory of a multiprocessor:

    materialized:      4 N d + 4 N²                   q, k, v, out once; scores and weights written and read (algorithm 0)
    FlashAttention:    2 N d + 3 N d T + 4 N T        k, v once; q, out, and out again, and the sums, in each of T passes
                                                      (algorithm 1 of Dao et al. 2022), T = ⌈N / B⌉ and B = ⌈M / 4d⌉ rows
    FlashAttention-2:  2 N d + 2 N d T + N            q, out and the log-sum-exp once; k, v in each pass (Dao 2023)
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...core import several
from ...core.spec import brief, nearest
from ..attention.attend import attend
from .accelerators import Accelerator
from .decoding import Computation
from .hardware import available
from .roofline import WIDTH

ALGORITHMS = ("materialized", "flash", "flash-2")
MOST = 1e12  # FLOPs of a measured pass


@dataclass(frozen=True)
class Traffic:
    """Predicted cost of the attention of some heads over n tokens on a device: FLOPs and bytes, by algorithm.

    passes: how often tiles pass over the others.
    """

    n: int
    hardware: Accelerator
    precision: str
    passes: int
    works: dict[str, Computation]

    def seconds(self, algorithm: str) -> float:
        """The least time: of arithmetic or of moving bytes, whichever is longer."""
        return self.works[algorithm].seconds(self.hardware, self.precision)


def traffic(
    lengths: Sequence[int], hardware: Accelerator, d: int = 64, heads: int = 1, precision: str = "bf16"
) -> list[Traffic]:
    """Predict the bytes that a forward pass of attention moves, by the formulas above, for each length.

    `d` is the width of a head; every pair of tokens is computed. Scores and weights have the precision of the inputs.

    Raises ValueError for a device whose fast memory is unknown, and for numbers below 1.
    """
    if hardware.sram is None:
        raise ValueError(
            f"the fast memory of {hardware.name} is unknown; name another device, such as a100, or describe it with "
            'sram in bytes: \'{"bf16": 1e15, "bandwidth": 3e12, "memory": 80e9, "sram": 192e3}\''
        )
    if precision not in WIDTH:
        raise ValueError(f"there is no precision {brief(precision)}; {nearest(precision, WIDTH)}")
    several.whole_numbers(1, d=d, heads=heads)
    for n in lengths:
        several.whole_numbers(1, length=n)
    width = WIDTH[precision]
    rows = math.ceil(hardware.sram / width / (4 * d))
    found = []
    for n in lengths:
        passes = math.ceil(n / rows)
        numbers = {
            "materialized": 4 * n * d + 4 * n * n,
            "flash": 2 * n * d + passes * (3 * n * d + 4 * n),
            "flash-2": 2 * n * d + passes * 2 * n * d + n,
        }
        works = {name: Computation(4 * n * n * d * heads, width * count * heads) for name, count in numbers.items()}
        found.append(Traffic(n, hardware, precision, passes, works))
    return found


@torch.no_grad()
def measured(n: int, d: int = 64, heads: int = 1, device: str | torch.device = "cpu") -> tuple[float, float] | None:
    """Measure the seconds of a forward pass on this machine in fp32: with materialized scores (the backend `reference`), and
    with the backend that `attend` chooses; the best of three each.

    Returns None for more than 1e12 FLOPs, or if the scores would fill more than a quarter of the free memory.
    """
    device = torch.device(device)
    room = available(device)
    if 4 * n * n * d * heads > MOST or (room is not None and 3 * 4 * heads * n * n > room / 4):
        return None
    q, k, v = torch.randn(3, 1, n, heads, d, device=device)

    def seconds(backend: str) -> float:
        best = math.inf
        for _ in range(3):
            start = time.perf_counter()
            attend(q, k, v, backend=backend)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            best = min(best, time.perf_counter() - start)
        return best

    return seconds("reference"), seconds("auto")
