"""`Layout`: how training is divided over ranks, in the axes of a recipe's `scale`, with the batches of a step.

A layout has to fit a model: `tensor` divides key-value heads, `expert` experts, `context` tokens, `pipeline` layers, and the
replicas rows. Ranks that differ in the last axis have consecutive numbers, so that `tensor` stays inside a node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ...core.spec import counted
from .work import Work

Recompute = Literal["none", "attention", "products", "blocks"]

# From the slowest axis to the fastest, as in `parallel.scale.AXES`.
AXES = ("pipeline", "data", "shard", "expert", "context", "tensor")
EXAMPLES = 8


@dataclass(frozen=True)
class Layout:
    """Ranks of each axis, and the batches of a step.

    zero:         what is divided over `shard` ranks: 1 the optimizer's state, 2 gradients too, 3 parameters too.
    microbatches: batches of a step, each of `rows` rows on every rank.
    chunks:       stages of each rank of an interleaved pipeline (Narayanan et al. 2021).
    recompute:    what is computed again in backward: nothing, attention's scores (Korthikanti et al. 2022), every second
                  product (torchtitan's selective checkpoints), or all of a block.
    """

    pipeline: int = 1
    data: int = 1
    shard: int = 1
    expert: int = 1
    context: int = 1
    tensor: int = 1
    zero: int = 0
    microbatches: int = 1
    rows: int = 1
    chunks: int = 1
    recompute: Recompute = "none"
    schedule: str = "1f1b"

    @property
    def ranks(self) -> int:
        return math.prod(self.size(axis) for axis in AXES)

    @property
    def replicas(self) -> int:
        """Ranks that compute different rows."""
        return self.data * self.shard * self.expert

    @property
    def batch(self) -> int:
        """Rows of a step, on all ranks."""
        return self.replicas * self.microbatches * self.rows

    def size(self, axis: str) -> int:
        size: int = getattr(self, axis)
        return size

    def stride(self, axis: str) -> int:
        """How far the ranks of an axis are apart."""
        return math.prod(self.size(other) for other in AXES[AXES.index(axis) + 1 :])

    def settings(self) -> str:
        """The settings that give this layout in qkv, for a command line."""
        axes = [axis for axis in AXES[1:] if self.size(axis) > 1] + (["pipeline"] if self.pipeline > 1 else [])
        words = [f"scale.{axis}={self.size(axis)}" for axis in axes]
        words += [f"scale.zero={self.zero}"] if self.shard > 1 else []
        words += [f"training.accumulate={self.microbatches}"] if self.microbatches > 1 else []
        return " ".join(words + ([f"training.recompute={self.recompute}"] if self.recompute != "none" else []))

    def __str__(self) -> str:
        axes = " × ".join(f"{axis} {self.size(axis)}" for axis in AXES if self.size(axis) > 1)
        zero = f", ZeRO {self.zero}" if self.zero else ""
        return f"{axes or 'one rank'}{zero}"


def check(layout: Layout, model: Work, ranks: int | None = None, batch: int | None = None) -> None:
    """Raise ValueError where a layout does not fit the ranks, the model or the batch, with the numbers that do."""
    if ranks is not None and layout.ranks != ranks:
        axes = [axis for axis in AXES if layout.size(axis) > 1] or ["data"]
        given = " × ".join(f"{axis} {layout.size(axis)}" for axis in axes)
        fits = ", ".join(" × ".join(map(str, sizes)) for sizes in factorizations(ranks, len(axes))[:EXAMPLES])
        raise ValueError(f"{given} = {counted(layout.ranks, 'rank')}, not {ranks}; {' × '.join(axes)} can be {fits}")
    if not model.divisible and (axis := next((a for a in ("tensor", "context", "pipeline") if layout.size(a) > 1), "")):
        raise ValueError(f"{axis} divides Transformers, and {model.name} is none; use data and shard")
    for axis, what, number in (
        ("tensor", "key-value heads", math.gcd(*(layer.kv_heads for layer in model.layers))),
        ("expert", "experts", math.gcd(*(layer.n_experts for layer in model.layers))),
        ("context", "tokens of a row", model.length),
    ):
        size = layout.size(axis)
        if size > 1 and (not number or number % size):
            allowed = ", ".join(map(str, divisors(number))) if number else "1 only"
            raise ValueError(f"{axis}={size} does not divide the {number} {what} of {model.name}; it can be {allowed}")
    if layout.pipeline * layout.chunks > len(model.layers):
        raise ValueError(
            f"pipeline={layout.pipeline} is more than the {len(model.layers)} layers of {model.name}; it can be 1 to "
            f"{len(model.layers)}"
        )
    if layout.pipeline > 1 and layout.zero == 3:
        raise ValueError("zero=3 does not go with pipeline, whose ranks have parts of the model; give zero=2 or 1")
    if batch is not None and batch % layout.replicas:
        allowed = ", ".join(map(str, divisors(batch)))
        raise ValueError(
            f"a batch of {batch:,} rows can't be divided over {layout.replicas} replicas; data × shard × expert can be "
            f"{allowed}, or give another --batch"
        )


def divisors(number: int) -> list[int]:
    """The numbers that divide a number, in increasing order."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def factorizations(ranks: int, axes: int) -> list[tuple[int, ...]]:
    """All sizes of a number of axes whose product is the number of ranks, those with large first axes first."""
    if axes == 1:
        return [(ranks,)]
    return [(n, *rest) for n in reversed(divisors(ranks)) for rest in factorizations(ranks // n, axes - 1)]
