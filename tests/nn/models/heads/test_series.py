"""Heads of time series."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qkv.data.task import RandomContext
from qkv.nn.layers.patches import Patches, image_layout
from qkv.nn.models.heads.series import Forecaster
from qkv.runs.tasks.forecasting.task import Forecast

CHANCE = RandomContext(np.random.default_rng(0), True)


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
