"""What the machine can do at this moment: products of matrices, and reading memory. Taken once a round, as a contender."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from qkv.nn.kernels.products.dense import dense_product

TRIES = 3


class Probe:
    """GFLOP/s of a size³ product in fp32 and bf16, GB/s of reading `mib` MiB: the best of three of each.

    Products are by PyTorch's operator or by qkv's, whichever is faster.

    Memory is read by a sum and by a product with one vector, which PyTorch's kernels do at different speeds.
    """

    def __init__(self, size: int = 2048, mib: int = 512) -> None:
        self.size = size
        self.matrices = [torch.randn(size, size).to(dtype) for dtype in (torch.float32, torch.bfloat16)]
        self.memory = torch.ones(mib << 8, 1024)  # larger than a core's share of the last cache
        self.vector = torch.ones(1024)

    def __call__(self) -> dict[str, float]:
        flops = 2 * self.size**3 / 1e9
        fp32, bf16 = (
            flops / min(best(lambda m=matrix: m @ m), best(lambda m=matrix: dense_product(m, m)))
            for matrix in self.matrices
        )
        read = self.memory.numel() * 4 / 1e9 / min(best(self.memory.sum), best(lambda: self.memory @ self.vector))
        return {"gemm_fp32": fp32, "gemm_bf16": bf16, "read": read}


def best(work: Callable[[], object]) -> float:
    """Seconds of the fastest try."""
    taken = []
    for _ in range(TRIES):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)
