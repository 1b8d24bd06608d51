"""Check before training that the largest batch fits into memory, and suggest settings that do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from ...core.batch import Batch
from ...nn.cost.flops import BatchShape
from ...nn.cost.hardware import available
from ...nn.cost.memory import Loss, MakeOptimizer, MemorySettings, ceiling, predict
from ...nn.layers.lora import Adapter, adapt
from ...nn.models.base import ModelSpec
from ...nn.quantization.scheme import scheme_of
from ...training.gradients.accumulation import over_labels, weighed
from ...training.mixed_precision import DTYPES, choose
from ...training.objective import Objective, terms_of
from ...training.settings import Training
from ...training.weight_averaging import ExponentialMovingAverage

GIB = 1 << 30


def plan_of(
    training: Training,
    spec: ModelSpec,
    device: torch.device,
    objective: Objective | None = None,
    *,
    packed: bool = False,
    padded: bool = False,
    adapter: Adapter | None = None,
    weights: str | None = None,
    batch: Batch | None = None,
) -> MemorySettings:
    """The training settings on which memory depends, and a batch of the data if the objective needs more than token ids."""
    precision = choose(training.precision, device, spec.d_model).precision
    return MemorySettings(
        device=device if device.type == "cuda" else torch.device("cpu"),
        dtype=None if precision == "fp32" else DTYPES[precision],
        recompute=training.recompute,
        accumulate=training.accumulate,
        copies=int(isinstance(training.average, ExponentialMovingAverage)),
        packed=packed,
        padded=padded,
        optimizer=_optimizer(training, adapter),
        prepare=None if weights is None else partial(_blank, weights),
        loss=None if objective is None else _loss(objective),
        batch=batch,
    )


def _blank(weights: str, model: nn.Module) -> None:
    from ...nn.models.quantized.quantize import blank

    blank(model, scheme_of(weights))


def _optimizer(training: Training, adapter: Adapter | None) -> MakeOptimizer:
    def make(model: nn.Module) -> torch.optim.Optimizer:
        return training.optimizer.build(model if adapter is None else adapt(model, adapter))

    return make


def _loss(objective: Objective) -> Loss:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        counts = objective.counts(batch)
        return weighed(over_labels(terms_of(objective, model, batch), counts), counts)

    return loss


@dataclass(frozen=True)
class MemoryCheck:
    """Predicts whether a training fits into memory. `tokens` is `batching.tokens`."""

    spec: ModelSpec
    shape: BatchShape
    plan: MemorySettings
    tokens: int

    def check(self) -> None:
        """Raise ValueError, with settings that fit, if the largest batch doesn't. Fast if it is far from the limit."""
        free = available(self.plan.device)
        if free is None or ceiling(self.spec, self.shape, self.plan) < free / 2:
            return
        memory = predict(self.spec, self.shape, self.plan)
        if memory is not None and memory.peak > free:
            raise ValueError(
                f"training on batches of {self.tokens:,} tokens would take about {_gib(memory.peak)}, and this machine has "
                f"{_gib(free)} free; {self._advice(free)}"
            )

    def _advice(self, free: int) -> str:
        """Settings that fit, by the same prediction."""
        offers = []
        batches = self.batches(free)
        if batches is not None:
            tokens, times = -(-self.tokens // batches), batches * self.plan.accumulate
            offers.append(f"batching.tokens={tokens} with training.accumulate={times}, for steps as large")
        if self.plan.recompute != "blocks":
            less = predict(self.spec, self.shape, replace(self.plan, recompute="blocks"))
            if less is not None and less.peak <= free:
                offers.append(f"training.recompute=blocks ({_gib(less.peak)})")
        if not offers:
            return f"not even a row of {self.shape.length} tokens fits: take a smaller model or shorter rows"
        return f"what fits is {' or '.join(offers)}"

    def batches(self, free: int) -> int | None:
        """The number of smaller batches to split a batch into so that each fits while gradients are accumulated; None if
        even one row is too large. Memory grows linearly with the rows."""
        plan, rows = replace(self.plan, accumulate=2), self.shape.rows
        one = predict(self.spec, replace(self.shape, rows=1), plan)
        all_ = predict(self.spec, self.shape, plan)
        if one is None or all_ is None or one.peak > free or rows == 1:
            return None
        most = 1 + (free - one.peak) * (rows - 1) // (all_.peak - one.peak)
        return -(-rows // most)


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
