"""Estimate parameters, FLOPs, memory and time of training, for a recipe or a model alone (`qkv cost`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ...core.batch import Batch
from ...nn.cost import throughput
from ...nn.cost.flops import BatchShape, PartCost, parts, training_flops
from ...nn.cost.hardware import available
from ...nn.cost.images import image_tokens
from ...nn.cost.kv_cache import cache_bytes
from ...nn.cost.memory import TrainingMemory, predict
from ...nn.cost.throughput import peak_flops
from ...nn.layers.lora import Adapter
from ...nn.models.base import ModelSpec
from ...nn.models.transformer import Transformer
from ...runs.planning.batch_shape import allowed, widest
from ...runs.recipes.recipe import Recipe
from ...runs.train.memory_check import plan_of
from ...runs.train.prepare import read
from ...training.mixed_precision import DTYPES, Precision, choose
from ...training.objective import Objective
from ...training.parallel.team import Team
from ...training.settings import Training

ROWS, LENGTH = 8, 512  # the batch of a model without a recipe
TEXT_LENGTH = 64  # of the text of an image
CACHES = {"bf16": None, "int8": "int8", "int4": "int4"}


@dataclass(frozen=True)
class TrainingCosts:
    """Estimated costs of training on one device.

    parts:    parameters and forward FLOPs of a batch by part of the model, see `cost.flops`.
    shape:    the largest batch: full rows of the longest allowed length.
    flops:    of a training step of one batch, forward and backward.
    memory:   None if it can't be predicted.
    free:     bytes of free memory on the device; None if unknown.
    peak:     measured FLOPs per second of a large matrix product on the device.
    seconds:  estimated time of a training step of one batch.
    batches:  number of batches in the training; None if the settings don't limit it.
    cache:    bytes of the KV cache for one row of the batch's length, including the encoder's keys and values, by precision;
              None if no layer has one, or if a layer has another kind of cache.
    active:   parameters that a token uses; of a mixture, only the experts that the router picks.
    spec, training: of the model, and the settings of its training; not part of the JSON.
    basis:    where the vocabulary and the lengths of rows come from.
    """

    name: str
    parameters: int
    parts: list[PartCost]
    shape: BatchShape
    flops: int
    device: str
    precision: Precision
    memory: TrainingMemory | None
    free: int | None
    peak: float
    seconds: float
    batches: int | None = None
    cache: dict[str, int] | None = None
    active: int = 0
    spec: ModelSpec | None = None
    training: Training = field(default_factory=Training)
    basis: str = ""

    @property
    def flops_per_token(self) -> float:
        return self.flops / self.shape.tokens

    def to_dict(self) -> dict[str, Any]:
        fields = asdict(replace(self, spec=None, training=Training()))
        del fields["spec"], fields["training"]
        return {**fields, "flops_per_token": self.flops_per_token, "tokens_per_second": self.tokens_per_second}

    @property
    def tokens_per_second(self) -> float:
        return self.shape.tokens / self.seconds


def of_recipe(
    recipe: Recipe, device: torch.device, rows: int | None = None, length: int | None = None, data: bool = True
) -> TrainingCosts:
    """Estimate the costs of training by a recipe, from its data if they can be read (the vocabulary of a tokenizer trained
    on them, their classes, rows as long as the longest of the first batches). Otherwise, or if `data` is false, from what
    the recipe allows (a full vocabulary, the longest rows). `basis` says which."""
    if data:
        try:
            return _by_data(recipe, device, rows, length)
        except (ValueError, OSError) as error:
            basis = f"without the data ({error})"
    else:
        basis = "without the data"
    spec = recipe.spec()
    shape = _changed(allowed(recipe.batching, spec.is_encoder_decoder), rows, length)
    costs = _of_training(recipe, spec, shape, device, None)
    return replace(costs, basis=f"{basis}: a full vocabulary and rows as long as batching allows")


def _by_data(recipe: Recipe, device: torch.device, rows: int | None, length: int | None) -> TrainingCosts:
    found = read(recipe, Path(), Team.alone(device), False, Console(quiet=True))
    batches, _ = found.sample()
    passed = batches[-1].position["passed"]
    epoch = len(batches) / passed if passed else None
    shape = _changed(widest(batches, found.recipe.batching), rows, length)
    words = "" if found.tokenizer is None else f"a vocabulary of {found.tokenizer.vocab_size:,} tokens and "
    costs = _of_training(
        found.recipe, found.spec, shape, device, epoch, padded=not found.full, batch=found.largest(batches)
    )
    first = "batch" if len(batches) == 1 else f"{len(batches)} batches"
    return replace(costs, basis=f"from the data: {words}rows as long as the longest of the first {first}")


def _of_training(
    recipe: Recipe,
    spec: ModelSpec,
    shape: BatchShape,
    device: torch.device,
    epoch: float | None,
    padded: bool | None = None,
    batch: Batch | None = None,
) -> TrainingCosts:
    """Estimate costs from a recipe's settings. `epoch` is about the number of batches in an epoch, if known."""
    training = recipe.training
    costs = of_model(
        recipe.name,
        spec,
        shape,
        device,
        training,
        packed=recipe.batching.packing,
        padded=padded,
        adapter=recipe.adapter,
        weights=recipe.model.stored,
        objective=recipe.objective if padded is not None else None,
        batch=batch,
    )
    limits = [None if training.max_steps is None else training.max_steps * training.accumulate]
    limits.append(round(training.max_epochs * epoch) if training.max_epochs and epoch else None)
    return replace(costs, batches=min((limit for limit in limits if limit is not None), default=None))


def of_preset(
    name: str, spec: ModelSpec, device: torch.device, rows: int | None = None, length: int | None = None
) -> TrainingCosts:
    """Estimate the costs of a model without a recipe, by default on batches of 8 rows of 512 tokens (or its context, if that
    is shorter), or of 8 images, each with 64 tokens of text for an encoder–decoder."""
    tokens = image_tokens(spec)
    if tokens is not None and spec.is_encoder_decoder:
        text = _changed(BatchShape(ROWS, min(TEXT_LENGTH, spec.max_positions or TEXT_LENGTH)), rows, length)
        return of_model(name, spec, replace(text, source=tokens), device, Training())
    if tokens is not None:
        if length not in (None, tokens):
            raise ValueError(f"{name} reads images as {tokens} tokens each; leave out --length")
        return of_model(name, spec, _changed(BatchShape(ROWS, tokens), rows, None), device, Training())
    longest = min(LENGTH, spec.max_positions or LENGTH)
    shape = _changed(BatchShape(ROWS, longest, longest if spec.is_encoder_decoder else 0), rows, length)
    if spec.max_positions is not None and shape.length > spec.max_positions:
        raise ValueError(f"rows of {shape.length} tokens are longer than the model's context of {spec.max_positions}")
    return of_model(name, spec, shape, device, Training())


def of_model(
    name: str,
    spec: ModelSpec,
    shape: BatchShape,
    device: torch.device,
    training: Training,
    *,
    packed: bool = False,
    padded: bool | None = None,
    adapter: Adapter | None = None,
    weights: str | None = None,
    objective: Objective | None = None,
    batch: Batch | None = None,
) -> TrainingCosts:
    precision = choose(training.precision, device, spec.d_model).precision
    padded = spec.is_encoder_decoder if padded is None else padded
    more: dict[str, Any] = {"adapter": adapter, "weights": weights, "batch": batch}
    plan = plan_of(training, spec, device, objective, packed=packed, padded=padded, **more)
    peak, flops = peak_flops(device, DTYPES[precision]), training_flops(spec, shape)
    return TrainingCosts(
        name=name,
        parameters=spec.n_parameters,
        parts=parts(spec, shape),
        shape=shape,
        flops=flops,
        device=str(device),
        precision=precision,
        memory=predict(spec, shape, plan),
        free=available(device),
        peak=peak,
        seconds=throughput.seconds(flops, peak, device.type, precision, spec.d_model),
        cache=_caches(spec, shape),
        active=spec.cost().active,
        spec=spec,
        training=training,
    )


def _caches(spec: ModelSpec, shape: BatchShape) -> dict[str, int] | None:
    if not isinstance(spec, Transformer) or spec.decoder is None:
        return None
    sizes = {name: cache_bytes(spec, shape.length, kind, source=shape.source) for name, kind in CACHES.items()}
    return {name: size for name, size in sizes.items() if size} or None


def _changed(shape: BatchShape, rows: int | None, length: int | None) -> BatchShape:
    for name, value in (("rows", rows), ("length", length)):
        if value is not None and value < 1:
            raise ValueError(f"--{name} is a number of at least 1, not {value}")
    source = (length or shape.source) if shape.source else 0
    return BatchShape(rows or shape.rows, length or shape.length, source)
