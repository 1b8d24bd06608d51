"""What fits into a memory, and what each way of saving memory buys (`qkv cost fit`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from ...nn.attention.multi_head import Attention
from ...nn.cost.fit import (
    Decoding,
    decoding_memory,
    deepest,
    largest_batch,
    largest_decoding_batch,
    longest_rows,
    longest_text,
    prompt_bytes,
    shape_of,
    sharded_savings,
    training_memory,
    weights_bytes,
    widest,
)
from ...nn.cost.flops import BatchShape
from ...nn.cost.kv_cache import cache_bytes
from ...nn.cost.memory import MemorySettings
from ...nn.layers.lora import LoRA
from ...nn.models.base import ModelSpec
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import Causal, Full, window
from ...runs.train.memory_check import plan_of
from ...training.settings import Training

CPU = torch.device("cpu")
FORMULA = "formula"


@dataclass(frozen=True)
class Lever:
    """What one change buys: bytes at the shape of the question, the largest batch, and in decoding the longest text.

    `batch` None is any: the memory does not depend on the batch. `basis` is "counted" or "formula".
    """

    name: str
    bytes: int
    batch: int | None
    tokens: int | None = None
    basis: str = "counted"


@dataclass(frozen=True)
class FittingModel:
    """A model of another size that fits."""

    n_layers: int
    d_model: int
    parameters: int

    @classmethod
    def of(cls, spec: ModelSpec | None) -> FittingModel | None:
        return None if spec is None else cls(spec.n_layers, spec.d_model, spec.n_parameters)


@dataclass(frozen=True)
class TrainingFit:
    """What of a training fits. The longest row and the other models are for the batch of the question or, if that does not
    fit, for one row (`rows`)."""

    shape: BatchShape
    rows: int
    tokens: int
    deepest: FittingModel | None
    widest: FittingModel | None
    levers: list[Lever]


@dataclass(frozen=True)
class DecodingFit:
    """What of decoding fits. `prompt` is the temporary memory per row of reading a prompt of the whole length at
    once; the levers include it."""

    shape: BatchShape
    weights: int
    prompt: int
    levers: list[Lever]


@dataclass(frozen=True)
class Fit:
    """What fits into `memory` bytes. `misfits` says why training or decoding does not fit, if only the other does."""

    name: str
    parameters: int
    memory: int
    training: TrainingFit | None
    decoding: DecodingFit | None
    misfits: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def training_fit(
    spec: ModelSpec, shape: BatchShape, training: Training, memory: int, ranks: int, for_gpu: bool
) -> TrainingFit:
    """What fits in training. Raises ValueError, with what would fit, if one row does not."""
    plan = _plan(training, spec, for_gpu)
    levers = list(_training_levers(spec, shape, training, plan, memory, ranks))
    base = levers[0]
    if not base.batch:
        raise ValueError(_too_small(spec, shape, memory, levers))
    held = shape if base.batch >= shape.rows else replace(shape, rows=1)
    deep, wide = None, None
    with suppress(ValueError):
        deep = deepest(spec, held, plan, memory)
    with suppress(ValueError):
        wide = widest(spec, held, plan, memory)
    return TrainingFit(
        shape, held.rows, longest_rows(spec, held, plan, memory), FittingModel.of(deep), FittingModel.of(wide), levers
    )


def _plan(training: Training, spec: ModelSpec, for_gpu: bool, adapter: LoRA | None = None) -> MemorySettings:
    return replace(plan_of(training, spec, CPU, padded=spec.is_encoder_decoder, adapter=adapter), for_gpu=for_gpu)


def _too_small(spec: ModelSpec, shape: BatchShape, memory: int, levers: list[Lever]) -> str:
    alone = [lever.name for lever in levers[1:] if lever.batch is None or lever.batch > 0]
    would = (
        f"it would with {', or '.join(alone)}" if alone else "no single change here makes it fit: take a smaller model"
    )
    return (
        f"training one row of {shape.length:,} tokens of this model of {spec.n_parameters:,} parameters does not fit into "
        f"{memory / 1e9:,.4g} GB; {would}"
    )


def _training_levers(
    spec: ModelSpec, shape: BatchShape, training: Training, plan: MemorySettings, memory: int, ranks: int
) -> Iterator[Lever]:
    """The training as it is, by `plan`, and with each change alone."""

    def counted(name: str, model: ModelSpec, plan: MemorySettings) -> Lever:
        peak = training_memory(model, shape, plan).peak
        return Lever(name, peak, largest_batch(model, shape, plan, memory))

    def changed(**settings: Any) -> MemorySettings:
        return _plan(training.replace(settings), spec, plan.for_gpu)

    yield counted(f"as it is, in {training.precision}", spec, plan)
    if training.precision != "bf16":
        yield counted("precision=bf16", spec, changed(precision="bf16"))
    if spec.stacks():
        for policy in ("alternate", "blocks"):
            yield counted(f"recompute={policy}", spec, changed(recompute=policy))
        yield counted("precision=bf16 recompute=blocks", spec, changed(precision="bf16", recompute="blocks"))
    if shape.rows > 1:
        peak = training_memory(spec, replace(shape, rows=1), changed(accumulate=shape.rows)).peak
        yield Lever(f"accumulate={shape.rows}, 1 row at a time", peak, None if peak <= memory else 0)
    parts = training_memory(spec, shape, plan)
    for stage in (1, 2, 3):
        saved = sharded_savings(parts, stage, ranks)
        batch = largest_batch(spec, shape, plan, memory, saved)
        yield Lever(f"ZeRO stage {stage}, {ranks} GPUs, rows of each", parts.peak - saved, batch, basis=FORMULA)
    for name, model in _other_models(spec, shape.length):
        yield counted(name, model, plan)
    if spec.stacks():
        yield counted("LoRA of rank 8", spec, _plan(training, spec, plan.for_gpu, LoRA()))


def _other_models(spec: ModelSpec, length: int) -> Iterator[tuple[str, ModelSpec]]:
    """The model with fewer key-value heads and with a window: other models, to train anew or to tune."""
    mixers = [block.attention for _, stack in spec.stacks() for block in stack.blocks]
    if not mixers or not all(type(mixer) is Attention for mixer in mixers):
        return
    for count in (4, 1):
        if all(m.n_heads % count == 0 and (m.n_kv_heads or m.n_heads) > count for m in mixers):
            yield f"n_kv_heads={count}", spec.replace({"*.blocks.*.attention.n_kv_heads": count})
    size = max(length // 4, 1)
    if all(isinstance(m.pattern, Causal | Full) for m in mixers):
        patterns = {
            f"{name}.blocks.{i}.attention.pattern": window(size) if isinstance(p, Full) else p & window(size)
            for name, stack in spec.stacks()
            for i, p in enumerate(block.attention.pattern for block in stack.blocks)
        }
        yield f"a window of {size:,} tokens", spec.replace(patterns)


def decoding_fit(spec: ModelSpec, shape: BatchShape, memory: int) -> DecodingFit:
    """What fits in decoding. Raises ValueError, with what would fit, if one row does not."""
    if not isinstance(spec, Transformer) or spec.decoder is None:
        raise ValueError("only a Transformer with a decoder has a cache to count; ask for --for training")
    levers = list(_decoding_levers(spec, shape, memory))
    if not levers[0].batch:
        alone = [lever.name for lever in levers[1:] if lever.batch]
        would = f"it would with {', or '.join(alone)}" if alone else "take a smaller model or a shorter text"
        raise ValueError(
            f"decoding one row of {shape.length:,} tokens of this model of {spec.n_parameters:,} parameters in bf16 does "
            f"not fit into {memory / 1e9:,.4g} GB; {would}"
        )
    return DecodingFit(shape, weights_bytes(spec, Decoding()), prompt_bytes(spec, shape, Decoding()), levers)


def _decoding_levers(spec: Transformer, shape: BatchShape, memory: int) -> Iterator[Lever]:
    def counted(name: str, model: Transformer, decoding: Decoding) -> Lever:
        rows = largest_decoding_batch(model, shape, decoding, memory)
        tokens = longest_text(model, shape, decoding, memory)
        basis = "counted" if decoding.bits is None else FORMULA
        return Lever(name, decoding_memory(model, shape, decoding), rows, tokens, basis)

    yield counted("as it is, in bf16", spec, Decoding())
    yield counted("fp32", spec, Decoding(torch.float32))
    quantizes = cache_bytes(spec, 1, "int8") is not None  # not the state of a convolution
    if quantizes:
        yield counted("--set cache=int8", spec, Decoding(cache="int8"))
        yield counted("--set cache=int4", spec, Decoding(cache="int4"))
    yield counted("weights in int8", spec, Decoding(bits=8))
    yield counted("weights in int4", spec, Decoding(bits=4))
    if quantizes:
        yield counted("weights and cache in int4", spec, Decoding(bits=4, cache="int4"))
    for name, model in _other_models(spec, shape.length):
        assert isinstance(model, Transformer)
        yield counted(name, model, Decoding())


def of_preset(
    name: str,
    spec: ModelSpec,
    memory: int,
    *,
    rows: int,
    length: int,
    ranks: int = 8,
    purpose: str = "both",
    for_gpu: bool = True,
    training: Training | None = None,
) -> Fit:
    """What of a model fits into `memory` bytes. Raises ValueError for rows longer than its context, and if nothing fits."""
    shape = shape_of(name, spec, rows, length)
    settings = training or Training(precision="fp32")
    trained, decoded, misfits = None, None, list[str]()
    decodes = isinstance(spec, Transformer) and spec.decoder is not None
    if purpose == "decoding" or (purpose == "both" and decodes):
        try:
            decoded = decoding_fit(spec, shape, memory)
        except ValueError as error:
            misfits.append(str(error))
    if purpose != "decoding":
        try:
            trained = training_fit(spec, shape, settings, memory, ranks, for_gpu)
        except ValueError as error:
            misfits.append(str(error))
    if trained is None and decoded is None:
        raise ValueError("; ".join(misfits))
    return Fit(name, spec.n_parameters, memory, trained, decoded, misfits)
