"""Mean squared and mean absolute error of forecasts (MSE, MAE), and their charts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from torch import Tensor

from ....core.batch import Batch
from ....core.metrics.base import Metric, MetricValue
from ....core.metrics.display import register
from ....core.metrics.extremes import Extremes, Ranking
from ....look.chart import Series, line_chart
from ....look.pictures import draws

register("mse", "Squared error", higher_is_better=False)
register("mae", "Absolute error", higher_is_better=False)
register("last_value_mse", "Squared error of the last value")

_KEPT = 64  # forecasts from which samples are chosen


class ForecastMetric(Metric):
    """Mean squared and mean absolute error, over every value of every column of every window, in the source's units.

    `last_value_mse` is the error of repeating the last value, the baseline that a forecast has to beat.
    """

    def __init__(self) -> None:
        self.squared = self.absolute = self.still = 0.0
        self.count = 0
        self.kept: list[dict[str, Any]] = []
        self._ranking = Ranking("mse")

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        labels = batch.labels[:, 0] if batch.labels.ndim == 3 else batch.labels  # without the deviation
        past, forecast, truth = (restored(x, batch) for x in (batch.inputs["ids"][:, 0, 0], outputs, labels))
        self.squared += float(((forecast - truth) ** 2).sum())
        self.absolute += float(np.abs(forecast - truth).sum())
        self.still += float(((past[:, -1:] - truth) ** 2).sum())
        self.count += truth.size
        for i, about in enumerate(batch.texts):
            window = {"about": about, "past": past[i], "made": forecast[i], "truth": truth[i]}
            if len(self.kept) < _KEPT:
                self.kept.append(window)
            self._ranking.add(_error(window), partial(_without_output, window))

    def compute(self) -> dict[str, MetricValue]:
        if not self.count:
            return {}
        how = "values less the training split's mean, over its standard deviation"
        return {
            "mse": MetricValue(self.squared / self.count, how),
            "mae": MetricValue(self.absolute / self.count, how),
            "last_value_mse": MetricValue(self.still / self.count, "the last value of the history, repeated"),
        }

    def samples(self, count: int) -> list[dict[str, Any]]:
        every = max(1, len(self.kept) // max(count, 1))
        return [_sample(one) for one in self.kept[::every][:count]]

    def extremes(self) -> Extremes | None:
        return self._ranking.extremes()


def restored(values: Tensor, batch: Batch) -> NDArray[np.float64]:
    """Convert values (B, n), each row normalized by its own history, to the source's units."""
    scale, mean = (np.array([[one[name]] for one in batch.texts]) for name in ("scale", "mean"))
    scaled: NDArray[np.float64] = np.asarray(values.cpu(), np.float64) * scale + mean
    return scaled


def _sample(one: dict[str, Any]) -> dict[str, Any]:
    lines = {name: [round(float(x), 4) for x in one[name]] for name in ("past", "truth", "made")}
    return {
        "source": f"{one['about']['column']}, {one['about']['where']}",
        "output": f"mean squared error {_error(one):.3g}",
        "picture": {"kind": "forecast", **lines},
    }


def _without_output(one: dict[str, Any]) -> dict[str, Any]:
    """A sample whose score stands for the output."""
    return {**_sample(one), "output": ""}


def _error(one: dict[str, Any]) -> float:
    return float(((one["made"] - one["truth"]) ** 2).mean())


@draws("forecast")
def forecast(picture: Mapping[str, Any]) -> Markup:
    """Draw the values of `past`, `truth` and `made`, the forecast; time 0 is the last of the history."""
    past, lines = picture["past"], []
    for name, values in (("history", past), ("truth", picture["truth"]), ("forecast", picture["made"])):
        start = 1 - len(past) if name == "history" else 1
        lines.append(Series(name, [(start + i, value) for i, value in enumerate(values)]))
    return line_chart("", lines, x_label="time")
