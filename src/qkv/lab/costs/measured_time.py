"""Predict the time of a training step and of generation by measuring the model with one and three layers on this machine.

The time of a training step is nearly linear in its work:

    seconds = w · P + h · T + l · L · T

P is the number of parameters (the optimizer's update), T the number of tokens, L the number of layers; h stands for all
that is outside the layers, mainly the output layer. A step with one layer, one with three, and the update alone measure
l, h and w. Attention's share grows with the length of rows as its FLOPs do. Generation is measured with
one and three layers likewise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import nn

from ...core.batch import Batch, Term, Terms
from ...core.ranks import ALONE
from ...generation.generate import generate
from ...nn.cost.fit import with_layers
from ...nn.cost.flops import BatchShape, training_flops
from ...nn.cost.images import patches_of
from ...nn.cost.memory import MemorySettings, made_up_batch, own_loss
from ...nn.cost.throughput import peak_flops
from ...nn.models.base import ModelSpec
from ...nn.models.build import build
from ...nn.models.transformer import Transformer
from ...training.gradients.clipping import update
from ...training.mixed_precision import DTYPES, choose
from ...training.objective import Objective
from ...training.settings import Training
from ...training.step import Stepper

FEW = 1, 3  # layers
STEP = 1.7  # seconds that a measured step would take at peak speed, at most; fewer tokens multiply less efficiently
READINGS = 3
NEW_TOKENS = 64  # that generation is measured with, at most


@dataclass(frozen=True)
class MeasuredTime:
    """Predicted seconds on this machine.

    step:       of a training step of the batch, in this precision.
    generation: of `new` tokens after a prompt of `prompt` (an encoder–decoder's source), for one text, in the precision of
                the weights (fp32); None for a model that doesn't generate from tokens.
    """

    step: float
    precision: str
    threads: int
    generation: float | None = None
    prompt: int = 0
    new: int = 0


def measured_time(spec: ModelSpec, shape: BatchShape, training: Training, device: torch.device) -> MeasuredTime:
    """Measure for ten to twenty seconds and predict. Raises ValueError for a model that is not made of layers."""
    if not isinstance(spec, Transformer):
        raise ValueError(f"--measure times the layers of a Transformer, and this model is a {spec.kind}; leave it out")
    precision = choose(training.precision, device, spec.d_model).precision
    with torch.random.fork_rng():
        return _measured(spec, shape, training, device, precision)


def _measured(
    spec: Transformer, shape: BatchShape, training: Training, device: torch.device, precision: str
) -> MeasuredTime:
    step = MeasuredTime(training_seconds(spec, shape, training, device), precision, torch.get_num_threads())
    if spec.decoder is None or spec.head is None or not spec.predicts_tokens or patches_of(spec) is not None:
        return step
    longest = spec.max_positions or shape.length
    new = max(min(NEW_TOKENS, longest // 2), 1)
    prompt = shape.source if spec.is_encoder_decoder else max(min(shape.length, longest - new), 1)
    return replace(step, generation=generation_seconds(spec, prompt, new, device), prompt=prompt, new=new)


def training_seconds(spec: Transformer, shape: BatchShape, training: Training, device: torch.device) -> float:
    """Predict the seconds of a training step of one batch."""
    one, few = (with_layers(spec, n) for n in FEW)
    precision = choose(training.precision, device, spec.d_model).precision
    some = _affordable(few, shape, STEP * peak_flops(device, DTYPES[precision]))
    steps = [_Step(part, some, training, device) for part in (one, few)]
    first, second, update = _fastest([steps[0].take, steps[1].take, steps[1].update])
    update /= few.n_parameters
    first, second = first - update * one.n_parameters, second - update * few.n_parameters
    per_flop = max(second - first, 0.0) / (training_flops(few, some) - training_flops(one, some))
    base = training_flops(one, shape)
    others = first * base / training_flops(one, some)  # of a model of one layer on the whole batch
    return update * spec.n_parameters + others + per_flop * (training_flops(spec, shape) - base)


def generation_seconds(spec: Transformer, prompt: int, new: int, device: torch.device) -> float:
    """Predict the seconds of generating `new` tokens for one text, greedily, in the default cache."""
    one, few = (with_layers(spec, n) for n in FEW)
    first, second = _fastest([_generation(part, prompt, new, device) for part in (one, few)])
    flops = [part.cost(prompt, prompt if spec.is_encoder_decoder else 0).flops for part in (one, few, spec)]
    return first + max(second - first, 0.0) * (flops[2] - flops[0]) / (flops[1] - flops[0])


def _affordable(spec: Transformer, shape: BatchShape, flops: float) -> BatchShape:
    """The shape with as many of its rows, or if one is too much tokens of a row, as take these FLOPs in a training step."""
    rows = int(flops / training_flops(spec, replace(shape, rows=1)))
    if rows >= 1 or patches_of(spec) is not None:
        return replace(shape, rows=min(max(rows, 1), shape.rows))
    one = replace(shape, rows=1)
    while training_flops(spec, one) > flops and one.length > 16:
        one = _half(spec, one)
    return one


def _half(spec: Transformer, shape: BatchShape) -> BatchShape:
    """The shape with half of the rows, or of the tokens of its only row; two rows and one for an only image."""
    if shape.rows > 1 or patches_of(spec) is not None:
        return replace(shape, rows=max(shape.rows // 2, 1))
    return replace(shape, length=max(shape.length // 2, 1), source=(shape.source + 1) // 2)


class _OwnLoss:
    """An objective outside the registry: the loss of the model's head, or the sum of its outputs if it has none."""

    kind, single_pass, generates = "own loss", True, False

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        return {"loss": Term(own_loss(model, batch), batch.counts["loss"])}

    def counts(self, batch: Batch) -> dict[str, int]:
        return batch.counts


class _Step:
    """Training steps on tokens made up."""

    def __init__(self, spec: Transformer, shape: BatchShape, training: Training, device: torch.device) -> None:
        self.model = build(spec, device=device).train()
        once = training.replace(compile=False, accumulate=1)
        self.stepper = Stepper(self.model, cast(Objective, _OwnLoss()), once, ALONE)
        self.batch = _varied(made_up_batch(spec, shape, MemorySettings(device=device)), spec)

    def take(self) -> None:
        float(self.stepper.take([self.batch], 1e-5).loss)  # waits for the device

    def update(self) -> None:
        """Clip gradients and update the parameters, as in a step."""
        of, clip = self.stepper, self.stepper.training
        for p in self.model.parameters():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        loss = torch.zeros((), device=of.device)
        update(of.optimizer, loss, of.mixed, of.strategy, clip.clip_norm, clip.clip_value)


def _varied(batch: Batch, spec: ModelSpec) -> Batch:
    """The batch with all tokens of the vocabulary in turn: many rows of the embedding table get gradients, as in text."""
    inputs = dict(batch.inputs)
    for name in ("ids", "target"):
        if name in inputs and not inputs[name].is_floating_point():
            ids = inputs[name]
            inputs[name] = (torch.arange(ids.numel()) * 7919 % spec.vocab_size).view_as(ids)
    return replace(batch, inputs=inputs)


def _generation(spec: Transformer, prompt: int, new: int, device: torch.device) -> Callable[[], None]:
    model = build(spec, device=device).eval()
    ids = (torch.arange(prompt, device=device) * 7919 % spec.vocab_size)[None]

    def run() -> None:
        generate(model, ids, bos_id=0 if spec.is_encoder_decoder else None, max_new_tokens=new)

    return run


def _fastest(runs: Sequence[Callable[[], None]]) -> list[float]:
    """Run each once to warm up, then all in turn; return the least seconds of each, as other processes only slow down."""
    for run in runs:
        run()
    readings: list[list[float]] = [[] for _ in runs]
    for _ in range(READINGS):
        for run, own in zip(runs, readings, strict=True):
            start = time.perf_counter()
            run()
            own.append(time.perf_counter() - start)
    return [min(own) for own in readings]
