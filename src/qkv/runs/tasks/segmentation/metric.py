"""Mean IoU and pixel accuracy of semantic segmentation, with pictures assembled from their tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ....core.batch import IGNORE, Batch
from ....core.metrics.base import MeasuredModel, Metric, MetricValue, model_outputs
from ....core.metrics.extremes import Extremes, Ranking
from ....core.metrics.intersection_over_union import ious
from ....data.media.images import denormalized
from ....data.media.png import class_color, class_png, png
from ....look.pictures import draws
from ....look.pictures.bitmap import beside
from ....look.svg import tag

Views = Literal[1, 2, 4, 8]
_FLIPS: tuple[tuple[int, ...], ...] = ((), (3,), (2,), (2, 3))  # the axes of each
_KEPT = 16  # pictures kept to be shown
_OPEN = 16  # pictures at a time that are assembled from tiles, which come one picture after the other


@dataclass
class _Canvas:
    """A picture with its truth and prediction, assembled from the tiles seen so far."""

    image: NDArray[np.uint8]
    truth: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confusion: NDArray[np.int64]


class SegmentationMetric(Metric):
    """Measures predictions that are averaged over `views` (`seen_in`).

    miou: the mean over the classes of |truth ∩ prediction| / |truth ∪ prediction| in pixels, all pictures together;
    classes that are in neither are left out. pixel_accuracy: the share of pixels with the right class.
    """

    def __init__(
        self, classes: tuple[str, ...], mean: tuple[float, ...], std: tuple[float, ...], views: Views = 1
    ) -> None:
        self._classes, self._scale, self._views = classes, (mean, std), views
        self._confusion = np.zeros((len(classes), len(classes)), np.int64)
        self._open: dict[str, _Canvas] = {}  # pictures of which more tiles may come
        self._kept: list[dict[str, Any]] = []
        self._ranking = Ranking("miou")

    def evaluate(self, model: MeasuredModel, batch: Batch) -> None:
        outputs = seen_in(self._views, model, batch)
        self.check_nan(outputs)
        self.update(outputs, batch)

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        labels = batch.labels.cpu()
        for row, (predicted, truth) in enumerate(zip(likeliest(outputs, labels.shape[1:]), labels, strict=True)):
            n, counted = len(self._classes), truth != IGNORE
            pairs = torch.bincount(n * truth[counted] + predicted[counted], minlength=n * n)
            confusion = pairs.reshape(n, n).numpy()
            self._confusion += confusion
            self._paste(batch, row, truth.numpy(), predicted.numpy(), confusion)

    def _paste(
        self, batch: Batch, row: int, truth: NDArray[Any], predicted: NDArray[Any], confusion: NDArray[np.int64]
    ) -> None:
        """Copy a tile into the picture that it belongs to."""
        about = batch.texts[row]
        top, left, size = about["place"]
        canvas = self._open.get(about["where"])
        if canvas is None:
            if len(self._open) == _OPEN:
                self._finish(next(iter(self._open)))
            empty = np.full(size, IGNORE)
            image = np.zeros((len(batch.inputs["ids"][row]), *size), np.uint8)
            canvas = self._open[about["where"]] = _Canvas(image, empty, empty.copy(), 0 * confusion)
        canvas.confusion = canvas.confusion + confusion
        high, wide = (min(n, end - at) for n, end, at in zip(truth.shape, size, (top, left), strict=True))
        here, part = (slice(top, top + high), slice(left, left + wide)), (slice(high), slice(wide))
        pixels = denormalized(batch.inputs["ids"][row].cpu().numpy(), *self._scale)
        canvas.image[:, here[0], here[1]] = pixels[:, part[0], part[1]]
        own = truth[part] != IGNORE
        canvas.truth[here][own] = truth[part][own]
        free = own | (canvas.predicted[here] == IGNORE)
        canvas.predicted[here] = np.where(free, predicted[part], canvas.predicted[here])

    def _finish(self, where: str) -> None:
        """Take a picture whose tiles have all come as a sample, if it is among the first, and rank it."""
        canvas = self._open.pop(where)
        score = _mean(ious(canvas.confusion))
        if len(self._kept) < _KEPT:
            self._kept.append(self._sample(where, canvas, f"mean IoU {score:.3f}"))
        self._ranking.add(score, partial(self._sample, where, canvas, ""))

    def _finish_all(self) -> None:
        for where in list(self._open):
            self._finish(where)

    def compute(self) -> dict[str, MetricValue]:
        shares = ious(self._confusion)
        pixels = int(self._confusion.sum())
        right = np.trace(self._confusion) / pixels if pixels else float("nan")
        named = ((name, share) for name, share in zip(self._classes, shares, strict=True) if np.isfinite(share))
        how = ", ".join(f"{name} {share:.3f}" for name, share in named)
        return {
            "miou": MetricValue(_mean(shares), f"of classes in all pixels together: {how}"),
            "pixel_accuracy": MetricValue(float(right)),
        }

    def samples(self, count: int) -> list[dict[str, Any]]:
        self._finish_all()
        return self._kept[:count]

    def extremes(self) -> Extremes | None:
        self._finish_all()
        return self._ranking.extremes()

    def _sample(self, where: str, canvas: _Canvas, output: str) -> dict[str, Any]:
        names = [[name, "#{:02x}{:02x}{:02x}".format(*class_color(k))] for k, name in enumerate(self._classes)]
        return {
            "source": where,
            "output": output,
            "picture": {
                "kind": "mask",
                "image": png(canvas.image),
                "truth": class_png(canvas.truth),
                "made": class_png(canvas.predicted),
                "classes": names,
            },
        }


def seen_in(views: Views, model: Callable[..., Any], batch: Batch) -> Tensor:
    """Run a model on a batch: scores (B, classes, h, w), or the mean of their soft-max over views of each picture, turned
    back: 2 are the picture and its mirror image, 4 both upside down too, 8 all of these transposed.

    Errors differ between views, so averaging reduces them (test-time augmentation, Ronneberger et al. 2015).
    """
    if views == 1:
        outputs: Tensor = model_outputs(model, batch)
        return outputs
    probabilities = []
    for axes, transposed in product(_FLIPS[:views], (False, True)[: 1 + (views == 8)]):
        pixels = batch.inputs["ids"].flip(axes)
        scores = model_outputs(
            model, replace(batch, inputs={**batch.inputs, "ids": pixels.mT if transposed else pixels})
        )
        probabilities.append((scores.mT if transposed else scores).flip(axes).softmax(1))
    return torch.stack(probabilities).mean(0)


def likeliest(outputs: Tensor, size: Sequence[int]) -> Tensor:
    """(B, H, W): the class index of each pixel, from scores (B, classes, h, w) at the same or a lower resolution."""
    return F.interpolate(outputs, size=tuple(size), mode="bilinear", align_corners=False).argmax(1)


def _mean(shares: NDArray[np.float64]) -> float:
    """The mean over the classes that occur; NaN if none does."""
    return float(np.nanmean(shares)) if np.isfinite(shares).any() else float("nan")


@draws("mask")
def mask(picture: Mapping[str, Any]) -> Markup:
    """Draw `image`, `truth` and `made` (PNGs in base64) side by side above the names and colors of `classes`."""
    swatch = "display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em;background:"
    names = [tag("span", tag("span", "", style=f"{swatch}{color}"), name) for name, color in picture["classes"]]
    titles = {"image": "picture", "truth": "truth", "made": "prediction"}
    row = beside(((title, picture[key]) for key, title in titles.items()), widest=220)
    return tag("div", row, tag("p", *names, style="margin:.4em 0 0 -1em"))
