"""The runs of a scaling study: for each budget and size a recipe with the steps that use the budget up."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from ...core.spec import counted
from ...data.tokenizers.tokenizer import Tokenizer
from ...nn.cost import throughput
from ...nn.cost.flops import BatchShape, training_flops
from ...nn.cost.throughput import peak_flops
from ...nn.models.base import ModelSpec
from ...nn.models.transformer import Transformer
from ...runs.planning.batch_shape import widest
from ...runs.recipes import overrides
from ...runs.recipes.recipe import Recipe
from ...runs.train.prepare import read
from ...training.mixed_precision import DTYPES, choose
from ...training.parallel.team import Team
from ..costs.measured_time import training_seconds
from .study import LadderSize, ScalingStudy

FEWEST_STEPS = 20
WARMUP = 0.1  # of the steps, at most
STARTUP = 7.0  # seconds in which a run reads its data and writes its report


@dataclass(frozen=True)
class Rung:
    """One run of the ladder.

    budget: FLOPs to spend. flops: FLOPs of its whole number of steps, by the cost model; 3 forward passes a step.
    tokens: of training, `steps` batches.
    spec: of the model with the vocabulary and the classes of the data.
    shape: of a batch.
    """

    name: str
    size: LadderSize
    budget: float
    recipe: Recipe
    spec: ModelSpec
    steps: int
    tokens: int
    flops: float
    lr: float
    shape: BatchShape

    @property
    def parameters(self) -> int:
        return int(self.spec.n_parameters)


def ladder(study: ScalingStudy) -> list[Rung]:
    """The runs, smaller budgets and sizes first. Reads the data for the vocabulary and the lengths of rows.

    Raises ValueError if a budget is too small for one of the sizes.
    """
    scaled = {size: _recipe(study, size) for size in study.sizes()}
    if study.scaling.hold_out == "largest" and len(scaled) < 2:
        raise ValueError("holding out the largest model leaves none; give two or more --sizes, or --hold-out none")
    found = read(
        scaled[max(scaled)], Path(), Team.alone(torch.device("cpu")), False, Console(quiet=True, force_terminal=False)
    )
    shape = widest(found.sample()[0], found.recipe.batching)
    rungs = [
        _rung(study, budget, size, recipe, found.tokenizer, shape)
        for budget in study.scaling.budgets
        for size, recipe in scaled.items()
    ]
    if len({rung.name for rung in rungs}) < len(rungs):
        raise ValueError("two budgets of the ladder are nearly equal; give budgets that differ by 1 % or more")
    return rungs


def _recipe(study: ScalingStudy, size: LadderSize) -> Recipe:
    """The recipe with the model of another size."""
    data = study.recipe
    for key, value in study.scaled(size).items():
        data = overrides.put(data, f"model.{key}", value)
    try:
        recipe = Recipe.from_tree(data)
        recipe.spec()
        return recipe
    except ValueError as error:
        raise ValueError(f"the model of size {size}: {error}") from None


def _rung(
    study: ScalingStudy, budget: float, size: LadderSize, recipe: Recipe, tokenizer: Tokenizer | None, shape: BatchShape
) -> Rung:
    name = f"{budget:.3g}-{size}".replace("+", "")
    spec = recipe.resolve_data(tokenizer).model.spec(None if tokenizer is None else tokenizer.vocab_size)
    by_step = training_flops(spec, shape) * recipe.training.accumulate
    steps = round(budget / by_step)
    if steps < FEWEST_STEPS:
        raise ValueError(
            f"a budget of {budget:.3g} FLOPs gives the model of size {size} {counted(steps, 'step')} of {by_step:.2g} "
            f"FLOPs, and {FEWEST_STEPS} are the fewest; give larger --budgets, smaller --sizes, or smaller batches "
            "(batching.tokens)"
        )
    lr = recipe.training.optimizer.lr * (size.d_model / study.own_sizes()["d_model"]) ** -study.scaling.exponent
    data = recipe.to_dict()
    for key, setting in _settings(recipe, steps, lr).items():
        data = overrides.put(data, key, setting)
    recipe = Recipe.from_tree({**data, "name": f"{study.name}-{name}"})
    tokens = steps * shape.tokens * recipe.training.accumulate
    return Rung(name, size, budget, recipe, spec, steps, tokens, float(by_step * steps), lr, shape)


def _settings(recipe: Recipe, steps: int, lr: float) -> dict[str, object]:
    """Train for exactly these steps, with the schedule fitted to them, and evaluate at the end alone."""
    return {
        "training.optimizer.lr": float(f"{lr:.4g}"),
        "training.schedule.warmup": max(min(recipe.training.schedule.warmup, int(WARMUP * steps)), 1),
        "training.max_steps": steps,
        "training.max_epochs": None,
        "training.max_time": None,
        "training.patience": None,
        "training.eval_every": None,
        "evaluation.samples": 0,
    }


def predicted_seconds(rungs: Sequence[Rung], device: torch.device) -> dict[str, float]:
    """Predict the seconds of each run, from a few training steps of each size measured on this device."""
    by_size: dict[LadderSize, float] = {}
    for rung in rungs:
        if rung.size not in by_size:
            by_size[rung.size] = _step_seconds(rung, device)
    return {rung.name: STARTUP + rung.steps * by_size[rung.size] for rung in rungs}


def _step_seconds(rung: Rung, device: torch.device) -> float:
    spec, training = rung.spec, rung.recipe.training
    if isinstance(spec, Transformer):
        with suppress(ValueError), torch.random.fork_rng():  # raised for objectives that tokens made up can't serve
            return training.accumulate * training_seconds(spec, rung.shape, training, device)
    precision = choose(training.precision, device, spec.d_model).precision
    peak = peak_flops(device, DTYPES[precision])
    return throughput.seconds(rung.flops / rung.steps, peak, device.type, precision, spec.d_model)


def total_seconds(seconds: Sequence[float], jobs: int) -> float:
    """The time of all runs, `jobs` at a time in their order."""
    ends = [0.0] * jobs
    for own in seconds:
        ends.sort()
        ends[0] += own
    return max(ends)
