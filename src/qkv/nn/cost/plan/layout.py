"""`RankLayout`: how training is divided over ranks, in the axes of a recipe's `scale`, with the batches of a step.

A layout has to satisfy the checks of `rules.py`: `tensor` divides the heads, `expert` the experts, `context` the
tokens, `pipeline` the layers, and the replicas divide the rows. Ranks that differ in the last axis have consecutive
numbers, so `tensor` stays inside a node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ....core.spec import counted
from .rules import (
    ContextAttention,
    PipelineSchedule,
    check_experts,
    check_heads,
    check_layers,
    check_media,
    check_microbatches,
    check_objective,
    check_optimizer,
    check_schedule,
    check_stacks,
    check_tokens,
    check_zero,
    divisors,
)
from .work import ModelWork

Recompute = Literal["none", "alternate", "attention", "products", "blocks"]

# From the slowest axis to the fastest, as in `parallel.scale.AXES`.
AXES = ("pipeline", "data", "shard", "expert", "context", "tensor")
EXAMPLES = 8


@dataclass(frozen=True)
class RankLayout:
    """Ranks of each axis, and the batches of a step.

    zero:         what is divided over `shard` ranks: 1 the optimizer's state, 2 gradients too, 3 parameters too.
    microbatches: batches of a step, each of `rows` rows on every rank.
    schedule:     the pipeline schedule. chunks: stages per rank, 2 in the interleaved schedule of qkv.
    attention:    how queries reach the keys on other context ranks.
    recompute:    what is computed again in backward: nothing, every second block, attention's scores (Korthikanti et al.
                  2022), every second product (torchtitan's selective checkpoints), or all blocks. qkv trains with the first
                  two and the last.
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
    schedule: PipelineSchedule = "1f1b"
    attention: ContextAttention = "ring"

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

    @property
    def repeated(self) -> float:
        """The fraction of blocks that are computed again in backward."""
        return {"blocks": 1.0, "alternate": 0.5}.get(self.recompute, 0.0)

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
        words += [f"scale.pipeline_schedule={self.schedule}"] if self.pipeline > 1 and self.schedule != "1f1b" else []
        words += [f"scale.context_attention={self.attention}"] if self.context > 1 and self.attention != "ring" else []
        words += [f"training.accumulate={self.microbatches}"] if self.microbatches > 1 else []
        return " ".join(words + ([f"training.recompute={self.recompute}"] if self.recompute != "none" else []))

    def __str__(self) -> str:
        axes = " × ".join(f"{axis} {self.size(axis)}" for axis in AXES if self.size(axis) > 1)
        parts = [axes or "one rank"]
        parts += [f"ZeRO {self.zero}"] if self.zero else []
        parts += [self.schedule] if self.pipeline > 1 else []
        parts += [self.attention] if self.context > 1 else []
        return ", ".join(parts)


def check(layout: RankLayout, model: ModelWork, ranks: int | None = None, batch: int | None = None) -> None:
    """Raise ValueError if a layout does not fit the ranks, the model or the batch, with the numbers that do."""
    if ranks is not None and layout.ranks != ranks:
        axes = [axis for axis in AXES if layout.size(axis) > 1] or ["data"]
        given = " × ".join(f"{axis} {layout.size(axis)}" for axis in axes)
        fits = ", ".join(" × ".join(map(str, sizes)) for sizes in factorizations(ranks, len(axes))[:EXAMPLES])
        raise ValueError(f"{given} = {counted(layout.ranks, 'rank')}, not {ranks}; {' × '.join(axes)} can be {fits}")
    check_zero(layout.zero, layout.shard)
    check_optimizer(layout.zero, model.trained_by.optimizer, model.trained_by.elementwise)
    check_model(layout, model)
    check_schedule(layout.schedule, layout.pipeline, layout.zero)
    check_layers(layout.pipeline, layout.schedule, len(model.layers))
    if layout.pipeline > 1:
        check_microbatches(layout.schedule, layout.pipeline, layout.microbatches)
    if batch is not None and batch % layout.replicas:
        allowed = ", ".join(map(str, divisors(batch)))
        raise ValueError(
            f"a batch of {batch:,} rows can't be divided over {layout.replicas} replicas; data × shard × expert can be "
            f"{allowed}, or give another --batch"
        )


def check_model(layout: RankLayout, model: ModelWork) -> None:
    """Raise ValueError if an axis can't divide a model, by the checks that the training uses."""
    check_media(layout.tensor, layout.context, layout.pipeline, model.joint)
    check_tokens(layout.tensor, layout.context, model.kind, model.stacks, model.drops_path)
    check_objective(layout.pipeline, model.trained_by.objective, model.trained_by.single_pass)
    check_stacks(layout.pipeline, model.kind, model.transformer, model.reversible)
    check_layers(layout.pipeline, "1f1b", len(model.layers))
    for heads, kv_heads in model.heads:
        check_heads(layout.tensor, heads, kv_heads, model.name)
    mixtures = enumerate(layer.n_experts for layer in model.kinds if layer.n_experts)
    check_experts(layout.expert, {f"mixture {i} of {model.name}": n for i, n in mixtures})
    if model.length < layout.context:
        raise ValueError(f"context={layout.context} is more than the {model.length} tokens of a row of {model.name}")


def factorizations(ranks: int, axes: int) -> list[tuple[int, ...]]:
    """All sizes of a number of axes whose product is the number of ranks, with large first axes first."""
    if axes == 1:
        return [(ranks,)]
    return [(n, *rest) for n in reversed(divisors(ranks)) for rest in factorizations(ranks // n, axes - 1)]
