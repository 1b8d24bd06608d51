"""Forecasting end to end: columns as rows, instance normalization that is taken back, and a model that beats no change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qkv.data.synthetic.waves import Waves
from qkv.data.task import RandomContext
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.tasks.forecasting.task import Forecast
from qkv.runs.train.train import train

CHANCE = RandomContext(np.random.default_rng(0), True)


def test_each_column_is_normalized_by_its_own_history() -> None:
    source = Waves(history=16, horizon=4)
    example = source.table("train")[3]
    items = Forecast(history=16, horizon=4, tokens=2).items([example], None, CHANCE)
    assert len(items) == 3
    ids = items[1].arrays["ids"]
    assert ids.shape == (1, 1, 16) and abs(ids.mean()) < 1e-5 and abs(ids.std() - 1) < 1e-3
    about = items[1].example
    np.testing.assert_allclose(ids[0, 0] * about["scale"] + about["mean"], example["history"][:, 1], atol=1e-5)
    values, scale = items[1].labels
    np.testing.assert_allclose(values * scale + about["mean"], example["future"][:, 1], atol=1e-5)


def test_a_model_of_another_form_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model.image=\[1,48\]"):
        Recipe.load("forecast", ["data.history=48"]).resolve_data(None)
    with pytest.raises(ValueError, match="take series or waves"):
        Recipe.load("forecast", ["data=reverse"]).resolve_data(None)


def test_it_learns(tmp_path: Path) -> None:
    small = ["model.d_model=32", "model.n_layers=1", "model.n_heads=2", "model.d_ff=32", "training.max_steps=60"]
    more = ["training.eval_every=60", "training.optimizer.lr=0.005", "training.schedule.warmup=5", "data.length=1500"]
    done = train(Recipe.load("forecast", [*small, *more]), tmp_path / "run", device="cpu")
    assert done.evaluation is not None and done.report is not None
    metrics = done.evaluation.metrics
    assert metrics["mse"] < 0.4 * metrics["last_value_mse"]
    assert "forecast" in done.report.read_text() and "<svg" in done.report.read_text()
