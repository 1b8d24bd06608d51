"""Ladders: steps that use up the budget, rates by the rule, and predicted times."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_study import small_study

from qkv.lab.scaling.ladder import FEWEST_STEPS, STARTUP, ladder, predicted_seconds, total_seconds
from qkv.nn.cost.flops import training_flops


def test_runs_use_up_their_budgets(tmp_path: Path) -> None:
    rungs = ladder(small_study(tmp_path))
    assert [rung.name for rung in rungs[:5]] == ["8e07-8x1", "8e07-16x1", "8e07-24x1", "8e07-32x1", "1.6e08-8x1"]
    for rung in rungs:
        assert rung.flops == pytest.approx(rung.budget, rel=0.5 / FEWEST_STEPS)
        assert rung.flops == rung.steps * training_flops(rung.spec, rung.shape)
        assert rung.tokens == rung.steps * 64 and rung.recipe.training.max_steps == rung.steps
        assert rung.recipe.training.eval_every is None and rung.spec.d_model == rung.size.d_model
        assert rung.recipe.training.schedule.warmup <= max(rung.steps // 10, 1)


def test_rates_follow_the_rule(tmp_path: Path) -> None:
    rates = [rung.recipe.training.optimizer.lr for rung in ladder(small_study(tmp_path))[:4]]
    assert rates == pytest.approx([2e-3, 1e-3, 0.667e-3, 0.5e-3], rel=1e-3)  # the recipe's 1e-3 is for a width of 16
    constant = ladder(small_study(tmp_path, rate="constant"))
    assert {rung.recipe.training.optimizer.lr for rung in constant} == {1e-3}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budgets": (1e6,)}, "gives the model of size 8x1 .* and 20 are the fewest; give larger --budgets"),
        ({"budgets": (8e7, 8.001e7)}, "two budgets of the ladder are nearly equal"),
        ({"sizes": ("16x1",)}, "holding out the largest model leaves none"),
    ],
)
def test_ladders_that_cannot_be_trained_are_refused(
    tmp_path: Path, changes: dict[str, tuple[float | str]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ladder(small_study(tmp_path, **changes))


def test_the_time_is_predicted_from_steps_of_each_size(tmp_path: Path) -> None:
    rungs = ladder(small_study(tmp_path))
    seconds = predicted_seconds(rungs, torch.device("cpu"))
    assert list(seconds) == [rung.name for rung in rungs]
    assert all(STARTUP < value < STARTUP + 60 for value in seconds.values())
    by_step = {rung.name: (seconds[rung.name] - STARTUP) / rung.steps for rung in rungs}
    assert by_step["8e07-8x1"] == pytest.approx(by_step["1.6e08-8x1"])


def test_runs_at_a_time_share_the_total() -> None:
    assert total_seconds([1, 2, 3], 1) == 6
    assert total_seconds([3, 1, 2], 2) == 3
    assert total_seconds([5, 1], 4) == 5
