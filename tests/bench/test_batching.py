"""`python -m bench batching`: a training is measured, and the table has its shares."""

from __future__ import annotations

import json

import pytest
from bench.batching import CASES, QUICK, Case, main, table

from bench import machine
from qkv.runs.recipes.recipe import Recipe


def test_quick_measures_a_training_and_its_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick"]) == 0
    printed = capsys.readouterr().out
    assert (
        f"| `{QUICK[0].recipe}`: {QUICK[0].name} |" in printed and "Measured by `python -m bench batching`" in printed
    )


def test_the_shares_are_of_a_step() -> None:
    row = {"case": "short", "recipe": "lm", "parameters": 1200, "step": 0.1, "waiting": 0.001, "longest_wait": 0.01}
    rows = [{**row, "work": [0.002, 0.001]}, {**row, "case": "slow", "waiting": 0.001, "work": [0.3, 0.001]}]
    text = table({**machine.stamp(), "load_before": 0.0, "rows": rows})
    assert "| `lm`: short | 1,200 | 100 | 1.0% | 2.0% | 1.0% | reached |" in text
    assert "| `lm`: slow | 1,200 | 100 | 1.0% | 300.0% | 1.0% | **not reached**: work, first pass |" in text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_recipes_of_the_table_have_these_settings(case: Case) -> None:
    Recipe.load(case.recipe, [f"{key}={json.dumps(value)}" for key, value in case.settings().items()])
