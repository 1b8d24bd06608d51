"""Whether training an adapter on a model fits into a memory, known from the model's name within seconds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from ...nn.cost.fit import largest_batch, memory_by_layers, shape_of
from ...nn.cost.flops import BatchShape
from ...nn.cost.memory import MemorySettings, TrainingMemory
from ...nn.layers.lora import LoRA
from ...nn.models.base import ModelSpec
from ...nn.models.quantized.quantize import blank
from ...nn.quantization.scheme import scheme_of
from ...runs.train.memory_check import plan_of
from ...training.settings import Training

NF4 = "nf4"
WEIGHTS = {"lora": None, "qlora": NF4}  # by adapter, how the frozen weights are stored; None is fp32
GIB = 1 << 30


@dataclass(frozen=True)
class RecomputationFit:
    """Memory of training with one policy of recomputation: of the question's rows, and the most rows that fit."""

    recompute: str
    memory: TrainingMemory
    batch: int


@dataclass(frozen=True)
class AdapterFit:
    """What fits with an adapter of `rank` on frozen weights. `weights` is how they are stored; None is fp32."""

    name: str
    parameters: int
    memory: int
    adapter: str
    rank: int
    weights: str | None
    precision: str
    shape: BatchShape
    settings: list[RecomputationFit]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def adapter_fit(
    name: str,
    spec: ModelSpec,
    memory: int,
    adapter: str,
    *,
    rows: int,
    length: int,
    training: Training | None = None,
    lora: LoRA | None = None,
    for_gpu: bool = True,
) -> AdapterFit:
    """What fits into `memory` bytes with the adapter `lora` or `qlora`. A few layers are counted, and the others take as
    much. Raises ValueError, with what would fit, if not even one row does."""
    shape = shape_of(name, spec, rows, length)
    settings, lora = training or Training(precision="bf16"), lora or LoRA()
    plan = plan_of(
        settings.replace(recompute="blocks"),
        spec,
        torch.device("cpu"),
        padded=spec.is_encoder_decoder,
        adapter=lora,
        weights=WEIGHTS[adapter],
    )
    plan = replace(plan, for_gpu=for_gpu)
    least = _setting(spec, shape, plan, memory)
    if not least.batch:
        raise ValueError(_too_small(name, spec, shape, memory, adapter, plan))
    most = _setting(spec, shape, replace(plan, recompute="none"), memory)
    return AdapterFit(
        name, spec.n_parameters, memory, adapter, lora.rank, WEIGHTS[adapter], settings.precision, shape, [most, least]
    )


def _setting(spec: ModelSpec, shape: BatchShape, plan: MemorySettings, memory: int) -> RecomputationFit:
    """What a policy takes, and the most rows that fit."""
    return RecomputationFit(
        plan.recompute, memory_by_layers(spec, shape, plan), largest_batch(spec, shape, plan, memory, by_layers=True)
    )


def _too_small(name: str, spec: ModelSpec, shape: BatchShape, memory: int, adapter: str, plan: MemorySettings) -> str:
    stored, row = WEIGHTS[adapter] or "fp32", replace(shape, rows=1)
    least = memory_by_layers(spec, row, plan)
    message = (
        f"training {adapter} on {name} does not fit into {memory / 1e9:,.4g} GB: one row of {shape.length:,} tokens takes "
        f"{least.peak / GIB:.1f} GiB, {least.weights / GIB:.1f} GiB of it the frozen weights in {stored}"
    )
    if adapter == "qlora":
        return f"{message}; take a smaller model or shorter rows (--length)"
    weights = scheme_of(NF4)
    plan = replace(plan, prepare=lambda model: blank(model, weights))
    quantized = memory_by_layers(spec, row, plan).peak
    does = "does" if quantized <= memory else "does not either"
    return f"{message}; --adapter qlora, which keeps them in nf4, {does}: {quantized / GIB:.1f} GiB"
