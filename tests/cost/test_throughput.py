from __future__ import annotations

import torch
from rich.console import Console
from run_tiny import TINY

from qkv.cost.throughput import flops_per_token, peak_flops
from qkv.experiments.train import Job
from qkv.parallel.team import Team
from qkv.recipes.recipe import Recipe


def test_flops_of_a_token_come_from_the_models_own_formula(tmp_path) -> None:
    recipe = Recipe.load("reverse", [*TINY, "data.shortest=6"])  # so that all rows are alike
    job = Job.prepare(recipe, tmp_path / "run", Team.alone(torch.device("cpu")), False, Console(quiet=True))
    assert flops_per_token(job.spec, job.sample()[0]) == 3 * job.spec.cost(7, 7).flops / 14


def test_peak_is_a_plausible_speed() -> None:
    assert 1e8 < peak_flops(torch.device("cpu"), torch.float32) < 1e15
