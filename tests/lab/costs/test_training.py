"""What `qkv cost` tells, by recipe and by preset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from fast_subset import fast
from run_tiny import TINY

from qkv.cli import main
from qkv.io.families import preset
from qkv.lab.costs.training import of_preset, of_recipe
from qkv.nn.cost.flops import BatchShape
from qkv.runs.inference.run import load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train

CPU = torch.device("cpu")


def test_a_recipe_without_its_data() -> None:
    recipe = Recipe.load("reverse", [*TINY, "training.accumulate=3"])
    costs = of_recipe(recipe, CPU, data=False)
    spec = recipe.model.spec(recipe.vocab_size)
    assert costs.shape == BatchShape(2, 64, 64) and costs.precision == "fp32"
    assert costs.parameters == spec.n_parameters == sum(part.parameters for part in costs.parts)
    assert costs.flops_per_token == 3 * spec.cost(64, 64).flops / 128
    assert costs.batches == 4 * 3
    assert costs.memory is not None and costs.memory.peak > 16 * costs.parameters
    assert costs.basis.startswith("without the data: a full vocabulary and rows as long as")
    assert of_recipe(recipe, CPU, rows=5, length=10, data=False).shape == BatchShape(5, 10, 10)


def test_a_recipe_by_its_data_costs_what_is_trained(tmp_path: Path) -> None:
    recipe = Recipe.load("reverse", TINY)
    costs = of_recipe(recipe, CPU)
    done = train(recipe, tmp_path / "run", device="cpu")
    assert costs.parameters == load(done.folder).model.spec.n_parameters
    assert costs.parameters < of_recipe(recipe, CPU, data=False).parameters
    assert costs.shape.length == 7  # six letters and the end, where 64 are allowed
    assert costs.basis.startswith("from the data: a vocabulary of ")


def test_where_the_data_are_missing_it_says_so() -> None:
    costs = of_recipe(Recipe.load("lm"), CPU)
    assert "without the data (no training data: give data.path" in costs.basis
    assert costs.shape == BatchShape(16, 256)


@pytest.mark.parametrize(
    "name",
    fast(
        ["answer", "bert", "caption", "choose", "classify", "detect", "electra", "forecast", "similarity"],
        *("classify", "forecast"),
    ),
)
def test_the_memory_of_a_task_is_measured_on_its_batches(name: str) -> None:
    small = Recipe.load(
        name, ["model.d_model=32", "model.n_heads=2"] if name in ("bert", "classify", "electra") else []
    )
    costs = of_recipe(small, CPU)
    assert costs.memory is not None
    assert costs.memory.peak > costs.memory.activations > 0
    more = of_recipe(small, CPU, rows=3 * costs.shape.rows).memory
    assert more is not None and more.activations > 2 * costs.memory.activations


def test_a_preset_on_batches_of_its_context_at_most() -> None:
    spec = preset("gpt", d_model=16, n_layers=1, n_heads=2, vocab_size=30, max_positions=100)
    costs = of_preset("mine", spec, CPU)
    assert costs.shape == BatchShape(8, 100) and costs.batches is None
    told = json.loads(json.dumps(costs.to_dict()))
    assert told["memory"]["weights"] == costs.memory.weights  # type: ignore[union-attr]
    assert told["tokens_per_second"] == pytest.approx(800 / told["seconds"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"length": 101}, "longer than the model's context of 100"),
        ({"rows": 0}, "--rows is a number of at least 1, not 0"),
    ],
)
def test_shapes_that_can_not_be(options: dict[str, int], said: str) -> None:
    spec = preset("gpt", d_model=16, n_layers=1, n_heads=2, vocab_size=30, max_positions=100)
    with pytest.raises(ValueError, match=said):
        of_preset("mine", spec, CPU, **options)


def test_a_row_too_short_to_quantize_has_one_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "gpt2", "--length", "255", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "int8 and int4 caches quantize rows from 256 tokens on" in said
    assert main(["cost", "gpt2", "--length", "256", "--device", "cpu"]) == 0
    assert "quantize rows" not in capsys.readouterr().out
