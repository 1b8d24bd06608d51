"""Predict what the runs of an ablation cost, before the first one begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from ...runs.recipes.recipe import Recipe
from ..costs.measured_time import measured_time
from ..costs.training import TrainingCosts, of_model, of_recipe


@dataclass(frozen=True)
class CostForecast:
    """Predicted costs of one run of a variant, without its evaluations.

    flops, seconds, tokens: of the whole training; None if its length is limited by time only.
    """

    parameters: int
    flops_per_step: float
    flops: float | None
    tokens: float | None
    seconds: float | None


def costs_of(recipes: Mapping[str, Recipe], device: torch.device) -> dict[str, TrainingCosts]:
    """Costs of a batch of each recipe. The data are read once for all recipes that read the same."""
    known: dict[str, TrainingCosts] = {}
    costs = {}
    for name, recipe in recipes.items():
        key = _data_of(recipe)
        if key not in known:
            costs[name] = known[key] = of_recipe(recipe, device)
        else:
            costs[name] = _of_same_data(recipe, known[key], device)
    return costs


def _data_of(recipe: Recipe) -> str:
    """All settings on which the shape of a batch and the vocabulary depend."""
    parts = {
        name: getattr(recipe, name) for name in ("data", "tokenizer", "source_tokenizer", "batching", "task", "head")
    }
    return repr({name: None if part is None else part.to_json() for name, part in parts.items()})


def _of_same_data(recipe: Recipe, other: TrainingCosts, device: torch.device) -> TrainingCosts:
    if recipe.task is not None or recipe.source_tokenizer is not None or other.spec is None:
        return of_recipe(recipe, device)  # parts of the model depend on the data in more ways
    spec = recipe.model.spec(getattr(other.spec, "vocab_size", None))
    costs = of_model(
        recipe.name,
        spec,
        other.shape,
        device,
        recipe.training,
        packed=recipe.batching.packing,
        adapter=recipe.adapter,
        objective=recipe.objective,
    )
    return replace(costs, batches=other.batches)


def forecast(recipe: Recipe, costs: TrainingCosts, slowdown: float = 1.0) -> CostForecast:
    """The costs of a training by this recipe, from the costs of a batch.

    slowdown: the ratio of measured to estimated time of a step.
    """
    training = recipe.training
    limits = [None if training.max_steps is None else training.max_steps * training.accumulate]
    limits.append(costs.batches if training.max_epochs else None)
    batches = min((limit for limit in limits if limit is not None), default=None)
    if batches is None:
        seconds = training.max_time
        return CostForecast(costs.parameters, costs.flops * training.accumulate, None, None, seconds)
    seconds = batches * costs.seconds * slowdown
    if training.max_time is not None:
        seconds = min(seconds, training.max_time)
    flops, tokens = batches * costs.flops, batches * costs.shape.tokens
    return CostForecast(costs.parameters, costs.flops * training.accumulate, flops, tokens, seconds)


def slowdown_of(costs: TrainingCosts, device: torch.device) -> float:
    """How many times slower a step is on this machine than estimated from its peak speed: measured in some seconds; 1 if
    the model can't be measured."""
    if costs.spec is None:
        return 1.0
    try:
        return measured_time(costs.spec, costs.shape, costs.training, device).step / costs.seconds
    except ValueError:  # not a Transformer
        return 1.0
