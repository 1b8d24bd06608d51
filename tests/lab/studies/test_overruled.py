"""A setting that a study overrules is told, in every kind of study."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qkv.lab.ablate.ablation import Ablation
from qkv.lab.scaling.study import ScalingStudy
from qkv.lab.tune.tuning import Tuning
from qkv.runs.compare.comparison import Comparison

LR, MORE = "training.optimizer.lr", ("training.max_steps=9", "training.eval_every=3")


def told(load: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load()
    return [str(one.message) for one in caught if "is not used" in str(one.message)]


@pytest.mark.parametrize("space", [f"{LR}=1e-4..1e-2,log", f"{LR}=1e-3,3e-3"])
def test_settings_that_the_search_sets_are_told(space: str) -> None:
    assert told(lambda: Tuning.load("reverse", MORE, space=space)) == []
    said = told(lambda: Tuning.load("reverse", [*MORE, f"{LR}=1e-3", "training.patience=2"], space=space))
    assert said == [
        f"{LR}=0.001 is not used, because the space that is searched sets it",
        "training.patience=2 is not used, because a tuning, whose trials have equal steps or time, sets it",
    ]


def test_settings_that_variants_set_are_told_unless_they_are_the_baseline() -> None:
    given = [f"{LR}=1e-3", "training.max_steps=9"]
    assert told(lambda: Ablation.load("reverse", given, vary=f"{LR}=1e-3,3e-3", alone=True)) == []
    assert told(lambda: Ablation.load("reverse", given, vary="model.d_model=64,96")) == []
    said = told(lambda: Ablation.load("reverse", [*given, "training.max_time=9s"], vary=f"{LR}=1e-4,3e-3"))
    assert said[0] == f"{LR}=0.001 is not used, because what is varied sets it"
    assert said[1].startswith("training.max_time='9s' is not used, because an ablation, which gives all variants")


def test_settings_that_variants_of_a_comparison_set_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("base: reverse\ncompare:\n  one: {training.max_steps: 5}\n  two: {model.d_model: 96}\n")
    assert told(lambda: Comparison.load(path, ["training.eval_every=3"])) == []
    said = told(lambda: Comparison.load(path, ["training.max_steps=9"]))
    assert said == ["training.max_steps=9 is not used in one, because a variant of the comparison sets it"]
    assert told(lambda: Comparison.load(path, ["training.max_steps=9", "compare.one=null"])) == []


def test_settings_that_a_scaling_study_sets_are_told() -> None:
    budgets = (1e9, 2e9)
    assert told(lambda: ScalingStudy.load("lm", [f"{LR}=1e-3"], budgets=budgets)) == []
    said = told(lambda: ScalingStudy.load("lm", ["training.max_steps=9"], budgets=budgets))
    assert said == [
        "training.max_steps=9 is not used, because a scaling study, which trains for its budgets of FLOPs, sets it"
    ]
