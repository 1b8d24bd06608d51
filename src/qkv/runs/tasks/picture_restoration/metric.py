"""PSNR and SSIM of restored pictures, with pictures of samples."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from torch import Tensor

from ....core.batch import Batch
from ....core.layout import Grid
from ....core.metrics.base import MeasuredModel, Metric, MetricValue
from ....core.metrics.extremes import Extremes, Ranking
from ....core.metrics.pictures import psnr, ssim
from ....data.media.images import Pixels, denormalized
from ....data.media.png import png
from ....look.pictures import draws
from ....look.pictures.bitmap import beside
from ....nn.layers.patches import unpatchify
from ..samples import Reservoir


class PictureSimilarity:
    """The mean PSNR and SSIM of pictures."""

    def __init__(self) -> None:
        self.pictures, self._psnr, self._ssim = 0, 0.0, 0.0

    def add(self, made: Pixels, truth: Pixels) -> float:
        """Add a picture (C, H, W) beside the true one; return its PSNR."""
        ratio = psnr(made, truth)
        self.pictures += 1
        self._psnr += ratio
        self._ssim += ssim(made, truth)
        return ratio

    def means(self) -> dict[str, float]:
        return {"psnr": self._psnr / self.pictures, "ssim": self._ssim / self.pictures} if self.pictures else {}


class RestorationMetric(Metric):
    """psnr: peak signal-to-noise ratio in decibels; ssim: structural similarity. Both are means over pictures of 8 bits, as
    `qkv predict` writes them."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], patch: tuple[int, int], made: str) -> None:
        self._scale, self._patch, self._made = (mean, std), patch, made
        self._of_model, self._of_input = PictureSimilarity(), PictureSimilarity()
        self._pictures: Reservoir[tuple[str, dict[str, Pixels], str]] = Reservoir(32)
        self._ranking = Ranking("psnr")

    def evaluate(self, model: MeasuredModel, batch: Batch) -> None:
        check_head(model)
        super().evaluate(model, batch)

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        seen = batch.inputs["ids"].float().cpu()
        numbers = {
            "seen": seen,
            self._made: restored(seen, outputs, self._patch),
            "truth": seen + batch.labels.float().cpu(),
        }
        pixels = {name: denormalized(one.numpy(), *self._scale) for name, one in numbers.items()}
        for row, about in enumerate(batch.texts):
            images = {name: one[row] for name, one in pixels.items()}
            before = self._of_input.add(images["seen"], images["truth"])
            after = self._of_model.add(images[self._made], images["truth"])
            where, output = str(about.get("where", "")), f"PSNR {before:.2f} → {after:.2f} dB"
            self._pictures.add((where, images, output))
            self._ranking.add(after, partial(self._sample, where, images, output))

    def compute(self) -> dict[str, MetricValue]:
        before = self._of_input.means()
        return {
            name: MetricValue(value, f"of the input {before[name]:.4g}")
            for name, value in self._of_model.means().items()
        }

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [self._sample(*one) for one in self._pictures.take(count)]

    def extremes(self) -> Extremes | None:
        return self._ranking.extremes()

    def _sample(self, where: str, images: Mapping[str, Pixels], output: str) -> dict[str, Any]:
        drawn = {name: png(image) for name, image in images.items()}
        titles = {"seen": "before", self._made: "model", "truth": "clean"}
        return {"source": where, "output": output, "picture": {"kind": "restored", "titles": titles, **drawn}}


def restored(seen: Tensor, outputs: Tensor, patch: tuple[int, int]) -> Tensor:
    """Corrupted pictures (B, C, H, W) with the model's outputs (B, N, P) added, in normalized units."""
    grid = Grid(seen.shape[2] // patch[0], seen.shape[3] // patch[1])
    return seen + unpatchify(outputs, grid, patch, "last")


def check_head(model: MeasuredModel) -> None:
    """Raise ValueError if a model's head does not predict pixels in the units of its input."""
    head = model.head
    if head.spec.kind != "pixels":
        raise ValueError(f"restored pictures need a head of the kind pixels, and the model's is {head.spec.kind}")
    if head.spec.normalized:
        raise ValueError("the head normalizes each patch, which loses its brightness; give model.normalized=false")


@draws("restored")
def pictures(picture: Mapping[str, Any]) -> Markup:
    """Draw PNGs in base64 side by side: `titles` has the title of each, by its key."""
    return beside(((title, picture[key]) for key, title in picture["titles"].items()), widest=150)


def tile_starts(side: int, tile: int) -> NDArray[np.int64]:
    """Where tiles begin along a side that is at least as long: evenly, each overlapping the next by a quarter or more."""
    count = 1 + -(-(side - tile) // max(1, tile - tile // 4))
    return np.linspace(0, side - tile, count).round().astype(np.int64)
