"""Explained variance of reconstructed pixels (MAE), with pictures of samples."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray
from torch import Tensor

from ....core.batch import Batch
from ....core.layout import Grid
from ....core.metrics.base import MeasuredModel, Metric, MetricValue
from ....core.metrics.display import register
from ....core.metrics.extremes import Extremes, Ranking
from ....data.media.images import denormalized
from ....data.media.png import png
from ....look.pictures import draws
from ....look.pictures.bitmap import beside
from ....nn.layers.patches import patchify, unpatchify
from ..samples import Reservoir

register("explained", scale="fraction", higher_is_better=True)
register("reconstruction_error", "Mean squared error of the pixels", higher_is_better=False)

_HIDDEN = 0.5  # brightness of hidden patches, 0 … 1


class ReconstructionMetric(Metric):
    """explained: 1 − Σ (x̂ − x)² / Σ (x − x̄)² over the pixels x of all patches that the loss is on, with the mean x̄ of each
    channel: 0 for a model that predicts the mean color, 1 for a perfect reconstruction."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self._scale = (mean, std)
        self._wrong, self._count = 0.0, 0
        self._sum, self._squares = np.zeros(len(mean)), 0.0
        self._from_truth = False  # whether mean and deviation of each patch come from the truth
        self._pictures: Reservoir[tuple[str, dict[str, NDArray[Any]], float]] = Reservoir(32)
        self._ranking = Ranking("reconstruction_error")

    def evaluate(self, model: MeasuredModel, batch: Batch) -> None:
        head: Any = model.head
        assert batch.labels is not None
        patch, layout, pixels = head.spec.patch, batch.inputs.get("layout"), batch.labels
        truth = patchify(pixels, patch, "last").float()
        output = model(**batch.inputs).float()
        self._from_truth = head.spec.normalized
        if self._from_truth:
            output = output * (truth.var(-1, keepdim=True) + 1e-6).sqrt() + truth.mean(-1, keepdim=True)
        counted = torch.ones(truth.shape[:2], dtype=torch.bool, device=truth.device)
        if layout is not None:
            counted = head.hidden_patches(layout).bool()
        self._measure(output[counted], truth[counted])
        grid = Grid(pixels.shape[2] // patch[0], pixels.shape[3] // patch[1])
        masked = layout is not None
        for row in range(len(truth)):
            shown = counted[row, :, None]
            whole = torch.where(shown, output[row], truth[row])
            inputs = patchify(batch.inputs["ids"][row : row + 1].float(), patch, "last")[0]
            parts = {
                "seen": inputs,
                "made": whole,
                "truth": truth[row],
                "hidden": (shown & masked).expand_as(whole).float(),
            }
            error = float((whole - truth[row]).square().sum() / shown.sum() / truth.shape[2])
            images = {
                name: unpatchify(part[None], grid, patch, "last")[0].cpu().numpy() for name, part in parts.items()
            }
            where = str(batch.texts[row].get("where", ""))
            self._pictures.add((where, images, error))
            self._ranking.add(error, partial(self._sample, where, images, ""))

    def _measure(self, output: Tensor, truth: Tensor) -> None:
        """Add patches (n, h · w · C) to the sums."""
        channels = truth.unflatten(-1, (-1, len(self._sum))).double()
        self._wrong += float((output - truth).square().sum(dtype=torch.float64))
        self._count += channels.shape[0] * channels.shape[1]
        self._sum += channels.sum((0, 1)).cpu().numpy()
        self._squares += float(channels.square().sum())

    def compute(self) -> dict[str, MetricValue]:
        spread = self._squares - float((self._sum**2).sum()) / max(self._count, 1)
        how = "mean and deviation of each patch taken from the truth" if self._from_truth else ""
        return {"explained": MetricValue(1 - self._wrong / spread, how)} if spread > 0 else {}

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [
            self._sample(where, shown, f"mean squared error {error:.3g}")
            for where, shown, error in self._pictures.take(count)
        ]

    def extremes(self) -> Extremes | None:
        return self._ranking.extremes()

    def _sample(self, where: str, shown: dict[str, NDArray[Any]], output: str) -> dict[str, Any]:
        return {"source": where, "output": output, "picture": self._picture(shown)}

    def _picture(self, shown: dict[str, NDArray[Any]]) -> dict[str, Any]:
        seen, made, truth = (denormalized(shown[name], *self._scale) for name in ("seen", "made", "truth"))
        seen = np.where(shown["hidden"] > 0, np.uint8(255 * _HIDDEN), seen)
        return {"kind": "patches", "seen": png(seen), "made": png(made), "truth": png(truth)}


@draws("patches")
def patches(picture: Mapping[str, Any]) -> Markup:
    """Draw `seen`, `made` and `truth`, PNGs in base64, side by side; hidden patches are gray in `seen`."""
    titles = {"seen": "seen", "made": "reconstructed", "truth": "truth"}
    return beside(((title, picture[key]) for key, title in titles.items()), widest=150)
