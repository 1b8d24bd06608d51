from __future__ import annotations

import pytest
import torch
from rich.console import Console
from run_tiny import TINY

from qkv.nn.cost.throughput import flops_per_token, peak_flops, product_size, seconds, utilization
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.prepare import read
from qkv.training.parallel.team import Team


def test_flops_of_a_token_come_from_the_models_own_formula(tmp_path) -> None:
    recipe = Recipe.load("reverse", [*TINY, "data.shortest=6"])  # so that all rows are alike
    found = read(recipe, tmp_path / "run", Team.alone(torch.device("cpu")), False, Console(quiet=True))
    assert flops_per_token(found.spec, found.sample()[0][0]) == 3 * found.spec.cost(7, 7).flops / 14


def test_peak_is_a_plausible_speed() -> None:
    assert 1e8 < peak_flops(torch.device("cpu"), torch.float32) < 1e15


def test_a_slow_precision_gets_a_small_product() -> None:
    """A bf16 product of 1536 takes nine seconds on processors without bf16 instructions."""
    assert product_size(lambda size: 2 * size**3 / 1e11) == 1536
    assert product_size(lambda size: 2 * size**3 / 5e9) == 768
    assert product_size(lambda size: 2 * size**3 / 1e9) == 384


def test_a_worked_example() -> None:
    """A width of 300 reaches 0.7 · 300 / 400 of the peak in fp32 on a CPU: 1e9 FLOPs at 1e9 a second take 1/0.525 s."""
    assert seconds(1e9, 1e9, "cpu", "fp32", 300) == pytest.approx(1 / 0.525)


@pytest.mark.parametrize(("device", "precision"), [("cpu", "fp32"), ("cpu", "bf16"), ("cuda", "bf16"), ("mps", "fp32")])
def test_wider_is_nearer_the_peak_and_never_above(device: str, precision: str) -> None:
    shares = [utilization(device, precision, width) for width in (16, 128, 1024, 1 << 20)]
    assert shares == sorted(shares) and shares[0] > 0 and shares[-1] < 1
