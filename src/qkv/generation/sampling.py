"""Sampling: temperature, top-k, nucleus (top-p) and min-p, and seeded draws that do not depend on the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..core.several import worded

BLOCK = 128  # numbers taken from a generator at a time


@dataclass(frozen=True)
class Temperature:
    """logits / temperature, shifted to a maximum of 0, which no temperature makes overflow."""

    reads_ids = False
    temperature: float

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        return (logits - logits.amax(-1, keepdim=True)) / self.temperature


@dataclass(frozen=True)
class TopK:
    """Keep the k likeliest tokens, and any as likely as the k-th (Fan et al. 2018)."""

    reads_ids = False
    k: int

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        least = logits.topk(min(self.k, logits.shape[1])).values[:, -1:]
        return logits.masked_fill(logits < least, -torch.inf)


@dataclass(frozen=True)
class TopP:
    """Keep the fewest likeliest tokens whose probabilities reach p, and any as likely as the least of them.

    Holtzman et al. 2020.
    """

    reads_ids = False
    p: float

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        probs = logits.softmax(-1)
        rising = _sorted(probs)
        kept = rising.cumsum(-1) > 1 - self.p
        kept[:, -1] = True
        least = rising.masked_fill(~kept, torch.inf).amin(-1, keepdim=True)
        return logits.masked_fill(probs < least, -torch.inf)


def _sorted(probs: Tensor) -> Tensor:
    """Sort each row in ascending order; on a CPU by NumPy, whose sort of values alone is many times faster."""
    if probs.device.type == "cpu":
        return torch.from_numpy(np.sort(probs.numpy(), axis=-1))
    return probs.sort(-1).values


@dataclass(frozen=True)
class MinP:
    """Keep tokens at least p times as likely as the likeliest (Nguyen et al. 2024)."""

    reads_ids = False
    p: float

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        probs = logits.softmax(-1)
        return logits.masked_fill(probs < self.p * probs.amax(-1, keepdim=True), -torch.inf)


def likeliest(logits: Float[Tensor, "N V"]) -> Int[Tensor, " N"]:
    """Return the likeliest token of each row, the first of equals; on a CPU by NumPy, several times faster than PyTorch."""
    if logits.device.type == "cpu" and not logits.requires_grad and logits.dtype == torch.float32:
        return torch.from_numpy(np.argmax(logits.numpy(), axis=-1))
    return logits.max(-1).indices


@worded
def row_seed(seed: int, row: int) -> int:
    """The seed of one row of a batch, or one sample of a prompt: `seed` mixed with the row's number."""
    return int(np.random.SeedSequence((seed, row)).generate_state(1, np.uint64)[0])


class Uniforms:
    """A sequence of random numbers in [0, 1) for each row, the same on every device and with any other rows."""

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.device = device
        self.generators = [torch.Generator().manual_seed(seed % 2**64) for seed in seeds]
        self.used = BLOCK
        self.block = torch.empty(0)

    def draw(self) -> Float[Tensor, "N 1"]:
        """Return the next number of every row."""
        if self.used == BLOCK:
            rows = [torch.rand(BLOCK, dtype=torch.float64, generator=generator) for generator in self.generators]
            self.block, self.used = torch.stack(rows).to(_widest(self.device)).to(self.device), 0
        self.used += 1
        return self.block[:, self.used - 1 : self.used]

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows only."""
        self.generators = [self.generators[row] for row in rows]
        self.block = self.block[list(rows)]


class UniformSequences:
    """The sequences of `Uniforms` with access by place, for rows that do not move on together."""

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.device = device
        self.generators = [torch.Generator().manual_seed(seed % 2**64) for seed in seeds]
        self.numbers = [torch.empty(0, dtype=torch.float64) for _ in seeds]

    def at(self, rows: Sequence[int], starts: Sequence[int], count: int) -> Float[Tensor, "N count"]:
        """Return `count` numbers of each of the rows, from its place in `starts` on."""
        parts = []
        for row, start in zip(rows, starts, strict=True):
            while len(self.numbers[row]) < start + count:
                more = torch.rand(BLOCK, dtype=torch.float64, generator=self.generators[row])
                self.numbers[row] = torch.cat([self.numbers[row], more])
            parts.append(self.numbers[row][start : start + count])
        return torch.stack(parts).to(_widest(self.device)).to(self.device)


def draw(logits: Float[Tensor, "N V"], uniform: Float[Tensor, "N 1"]) -> Int[Tensor, " N"]:
    """Draw one token per row from softmax(logits), by inverting the cumulative distribution at `uniform`.

    A token of probability 0 is never drawn: the point looked up stays below the total mass.
    """
    mass = logits.to(_widest(logits.device)).softmax(-1).cumsum(-1)
    total = mass[:, -1:]
    point = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(mass, point, right=True).squeeze(1).clamp_(max=logits.shape[1] - 1)


def _widest(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64
