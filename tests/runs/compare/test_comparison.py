"""Comparisons as values: what is loaded, and the mistakes that are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_comparison import load_comparison

from qkv.runs.compare.compare import compare
from qkv.runs.compare.comparison import Comparison


@pytest.mark.parametrize(
    "setting, said",
    [
        ("compare.alibi={model.position: alibo}", "compare.alibi"),
        ("compare={a/b: {}}", "folder"),
        ("measure.factors=[2,1]", "ascending"),
        ("measure.kind=length", "lengths"),
        ("measure.tokens=32", "raise it"),
    ],
)
def test_mistakes_are_named(recipe: Path, tmp_path: Path, setting: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        compare(load_comparison(recipe, setting), tmp_path / "out", device="cpu")


def test_a_plain_recipe_compares_nothing() -> None:
    assert Comparison.load("reverse") is None


def test_without_a_measure_the_validation_loss_is_plotted() -> None:
    comparison = Comparison.load("reverse", ["compare={sinusoidal: {}, none: {model.*.position: none}}"])
    assert comparison is not None and comparison.measure.kind == "progress"
    assert comparison.measure.y == "loss"
