"""The task `forecast`: forecasting, the next values of a time series from patches of its history (PatchTST)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from ....core.batch import Batch
from ....core.metrics.base import Metric
from ....data.batching.numpy_batch import Array
from ....data.readers import dataset_series  # noqa: F401  # registers the source
from ....data.readers.time_series import SeriesSource
from ....data.source import Example, Skipped, Source
from ....data.task import Item, Labels, RandomContext, Task
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....nn.layers.embedding import Input
from ....nn.layers.patches import Patches
from .metric import ForecastMetric

EPSILON = 1e-5  # of the variance, as RevIN has it


class Forecast(Task, kind="forecast"):
    """The `horizon` values that follow a history, each column for itself (PatchTST, Nie et al. 2023).

    A column of a window is an image one pixel high, which the model reads in patches. It is normalized by its history's
    mean and standard deviation √(σ² + ε), and the model's outputs are scaled back by them (Kim et al. 2022, reversible
    instance normalization, without its learned scale). `normalized: false` leaves values as the source has them. The
    loss is on the values scaled back: in units of the history's own deviation, a flat history would outweigh all
    others. So labels are (2, horizon), the values and the deviation that they were divided by.

    The other fields come from the data: `history` and `horizon`, and for each of the `columns` the mean and the standard
    deviation in the training split, `center` and `spread`, by which the source has scaled it; `step`, the median seconds
    between two rows.
    """

    fields = ("history", "future")
    pool: ClassVar[int] = 512
    needs_tokenizer: ClassVar[bool] = False

    normalized: bool = True
    history: int = 0
    horizon: int = 0
    tokens: int = 0
    columns: tuple[str, ...] = ()
    center: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()
    step: float | None = None

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        if not isinstance(source, SeriesSource):
            raise ValueError(
                f"forecasts are of series, and the data are of the kind {source.kind!r}; take series or waves"
            )
        if not isinstance(inputs, Patches) or inputs.channels != 1 or inputs.image != (1, source.history):
            raise ValueError(
                f"a history of {source.history} values is read as an image of 1 × {source.history} with one channel: give "
                f"model.image=[1,{source.history}], model.channels=1 and patches one high, such as model.patch=[1,8]"
            )
        center, spread = (tuple(one.tolist()) for one in source.scaling())
        scaled = {"columns": source.values()[1], "center": center, "spread": spread, "step": source.step()}
        sizes = {"history": source.history, "horizon": source.horizon, "tokens": inputs.grid.tokens}
        return self.replace({**sizes, **scaled})

    @property
    def n_labels(self) -> int | None:
        return self.horizon or None

    def inputs_of(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Sequence[Item] | Skipped]:
        """Return one item for each column of each window."""
        return [[self._column(one, j) for j in range(one["history"].shape[1])] for one in examples]

    def _column(self, example: Example, column: int) -> Item:
        past = example["history"][:, column]
        mean, scale = (float(past.mean()), math.sqrt(past.var() + EPSILON)) if self.normalized else (0.0, 1.0)
        about = {"mean": mean, "scale": scale, "number": column, "column": example["names"][column]}
        pixels = ((past - mean) / scale)[None, None]
        return Item({"ids": pixels}, tokens=self.tokens, example={**about, "where": example["where"]})

    def labels(self, example: Example, inputs: Item) -> Labels | Skipped:
        future, scale = example["future"][:, inputs.example["number"]], inputs.example["scale"]
        return np.stack([(future - inputs.example["mean"]) / np.float32(scale), np.full_like(future, scale)])

    def counts(self, labels: Array | None, targets: dict[str, Any]) -> dict[str, int]:
        return {} if labels is None else {"loss": labels[:, 0].size}

    def preview(self, batch: Batch, row: int, tokenizer: TextDecoder | None) -> list[tuple[str, str]]:
        assert batch.labels is not None
        return super().preview(replace(batch, labels=batch.labels[:, 0]), row, tokenizer)

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return ForecastMetric()
