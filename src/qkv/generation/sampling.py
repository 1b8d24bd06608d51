"""Seeded draws: every row has a stream of random numbers of its own, beside whatever other rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 128  # numbers taken from a generator at a time


def row_seed(seed: int, row: int) -> int:
    """The seed of one row's stream: rows of a batch, and samples of a prompt, differ by their number mixed in."""
    return int(np.random.SeedSequence((seed, row)).generate_state(1, np.uint64)[0])


class Uniforms:
    """For each row its own sequence of numbers in [0, 1), the same on every device and beside any other rows."""

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.device = device
        self.generators = [torch.Generator().manual_seed(seed % 2**64) for seed in seeds]
        self.used = BLOCK
        self.block = torch.empty(0)

    def draw(self) -> Float[Tensor, "N 1"]:
        """The next number of every row."""
        if self.used == BLOCK:
            rows = [torch.rand(BLOCK, dtype=torch.float64, generator=generator) for generator in self.generators]
            self.block, self.used = torch.stack(rows).to(_widest(self.device)).to(self.device), 0
        self.used += 1
        return self.block[:, self.used - 1 : self.used]

    def keep(self, rows: Sequence[int]) -> None:
        """Only these rows go on."""
        self.generators = [self.generators[row] for row in rows]
        self.block = self.block[list(rows)]


def draw(logits: Float[Tensor, "N V"], uniform: Float[Tensor, "N 1"]) -> Int[Tensor, " N"]:
    """One token per row from softmax(logits), by inverting the cumulative distribution at `uniform`.

    A token of probability 0 is never drawn: the point looked up stays below the total mass.
    """
    mass = logits.to(_widest(logits.device)).softmax(-1).cumsum(-1)
    total = mass[:, -1:]
    point = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(mass, point, right=True).squeeze(1).clamp_(max=logits.shape[1] - 1)


def _widest(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64
