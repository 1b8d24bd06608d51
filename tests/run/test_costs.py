"""What `qkv cost` tells, by recipe and by preset."""

from __future__ import annotations

import json

import pytest
import torch
from run_tiny import TINY

from qkv.cost.count import Shape
from qkv.families import preset
from qkv.run.costs import of_preset, of_recipe
from qkv.run.recipe import Recipe

CPU = torch.device("cpu")


def test_a_recipe_without_its_data() -> None:
    recipe = Recipe.load("reverse", [*TINY, "training.accumulate=3"])
    costs = of_recipe(recipe, CPU)
    spec = recipe.model.spec(recipe.vocab_size)
    assert costs.shape == Shape(2, 64, 64) and costs.precision == "fp32"
    assert costs.parameters == spec.n_parameters == sum(part.parameters for part in costs.parts)
    assert costs.flops_per_token == 3 * spec.cost(64, 64).flops / 128
    assert costs.batches == 4 * 3
    assert costs.memory is not None and costs.memory.peak > 16 * costs.parameters
    assert of_recipe(recipe, CPU, rows=5, length=10).shape == Shape(5, 10, 10)


def test_a_preset_on_batches_of_its_context_at_most() -> None:
    spec = preset("gpt", d_model=16, n_layers=1, n_heads=2, vocab_size=30, max_positions=100)
    costs = of_preset("mine", spec, CPU)
    assert costs.shape == Shape(8, 100) and costs.batches is None
    told = json.loads(json.dumps(costs.to_dict()))
    assert told["memory"]["weights"] == costs.memory.weights  # type: ignore[union-attr]
    assert told["tokens_per_second"] == pytest.approx(800 / told["seconds"])


@pytest.mark.parametrize(
    ("options", "said"),
    [({"length": 101}, "longer than the model's context of 100"), ({"rows": 0}, "--rows is a number from 1 on, not 0")],
)
def test_shapes_that_can_not_be(options: dict[str, int], said: str) -> None:
    spec = preset("gpt", d_model=16, n_layers=1, n_heads=2, vocab_size=30, max_positions=100)
    with pytest.raises(ValueError, match=said):
        of_preset("mine", spec, CPU, **options)
