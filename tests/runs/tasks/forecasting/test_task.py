"""Forecasting end to end: columns as rows, instance normalization that is taken back, and a model that beats no change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from qkv.data.synthetic.waves import Waves
from qkv.data.task import RandomContext
from qkv.nn.layers.patches import Patches, image_layout
from qkv.nn.models.heads.series import Forecaster
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


def test_a_flat_history_weighs_no_more_than_another() -> None:
    """The loss is in the units of the training split: a history's own deviation may be 0."""
    past, future = np.random.default_rng(0).normal(size=(16, 1)), np.array([[1.0], [2.0], [3.0]])
    examples = [
        {"history": history.astype(np.float32), "future": future.astype(np.float32), "names": ("a",), "where": ""}
        for history in (np.ones((16, 1)), past)
    ]
    task = Forecast(history=16, horizon=3, tokens=2)
    batch = task.collate(task.items(examples, None, CHANCE), 0)
    head = Forecaster(labels=3, patches=2).module(4, 0)
    for weight in head.parameters():
        torch.nn.init.zeros_(weight)
    layout = image_layout(Patches(channels=1, image=(1, 16), patch=(1, 8), before=0).grid)
    sums = head.loss(torch.zeros(2, 2, 4), torch.from_numpy(batch.labels), layout=layout)
    assert batch.counts == {"loss": 6} and sums.n_labels == 6
    by_hand = ((future - 1) ** 2).sum() + ((future - past.mean()) ** 2).sum()
    assert sums.loss.item() == pytest.approx(by_hand, rel=1e-4)


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
