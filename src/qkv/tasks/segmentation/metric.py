"""Mean IoU and pixel accuracy, all tiles of a picture put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.batch import IGNORE, Batch
from ...data.media.images import denormalized
from ...data.media.png import class_color, class_png, png
from ...metrics.base import Metric, MetricValue, model_outputs
from ...metrics.intersection_over_union import ious

Views = Literal[1, 2, 4, 8]
_FLIPS: tuple[tuple[int, ...], ...] = ((), (3,), (2,), (2, 3))  # the axes of each
_KEPT = 16  # pictures that are put together from their tiles


@dataclass
class _Canvas:
    """A picture with its truth and prediction, as far as its tiles have come."""

    image: NDArray[np.uint8]
    truth: NDArray[np.int64]
    made: NDArray[np.int64]
    confusion: NDArray[np.int64]


class SegmentationMetric(Metric):
    """What is said of pictures in `views` (`seen_in`), and how good it is.

    miou: the mean over the classes of |truth ∩ prediction| / |truth ∪ prediction| in pixels, all pictures together;
    classes that are in neither are left out. pixel_accuracy: the share of pixels with the right class.
    """

    def __init__(
        self, classes: tuple[str, ...], mean: tuple[float, ...], std: tuple[float, ...], views: Views = 1
    ) -> None:
        self._classes, self._scale, self._views = classes, (mean, std), views
        self._confusion = np.zeros((len(classes), len(classes)), np.int64)
        self._kept: dict[str, _Canvas] = {}

    def evaluate(self, model: nn.Module, batch: Batch) -> None:
        said = seen_in(self._views, model, batch)
        self.check_nan(said)
        self.update(said, batch)

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        labels = batch.labels.cpu()
        for row, (made, truth) in enumerate(zip(likeliest(outputs, labels.shape[1:]), labels, strict=True)):
            n, counted = len(self._classes), truth != IGNORE
            pairs = torch.bincount(n * truth[counted] + made[counted], minlength=n * n)
            confusion = pairs.reshape(n, n).numpy()
            self._confusion += confusion
            self._keep(batch, row, truth.numpy(), made.numpy(), confusion)

    def _keep(
        self, batch: Batch, row: int, truth: NDArray[Any], made: NDArray[Any], confusion: NDArray[np.int64]
    ) -> None:
        about = batch.texts[row]
        top, left, whole = about["place"]
        canvas = self._kept.get(about["where"])
        if canvas is None:
            if len(self._kept) == _KEPT:
                return
            empty = np.full(whole, IGNORE)
            image = np.zeros((len(batch.inputs["ids"][row]), *whole), np.uint8)
            canvas = self._kept[about["where"]] = _Canvas(image, empty, empty.copy(), 0 * confusion)
        canvas.confusion = canvas.confusion + confusion
        high, wide = (min(n, end - at) for n, end, at in zip(truth.shape, whole, (top, left), strict=True))
        here, part = (slice(top, top + high), slice(left, left + wide)), (slice(high), slice(wide))
        pixels = denormalized(batch.inputs["ids"][row].cpu().numpy(), *self._scale)
        canvas.image[:, here[0], here[1]] = pixels[:, part[0], part[1]]
        own = truth[part] != IGNORE
        canvas.truth[here][own] = truth[part][own]
        canvas.made[here] = np.where(own | (canvas.made[here] == IGNORE), made[part], canvas.made[here])

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
        names = [[name, "#{:02x}{:02x}{:02x}".format(*class_color(k))] for k, name in enumerate(self._classes)]
        return [
            {
                "source": where,
                "output": f"mean IoU {_mean(ious(canvas.confusion)):.3f}",
                "picture": {
                    "kind": "mask",
                    "image": png(canvas.image),
                    "truth": class_png(canvas.truth),
                    "made": class_png(canvas.made),
                    "classes": names,
                },
            }
            for where, canvas in list(self._kept.items())[:count]
        ]


def seen_in(views: Views, model: nn.Module, batch: Batch) -> Tensor:
    """What a model says of a batch: scores (B, classes, h, w), or the mean of their soft-max over views of each picture, put
    back upright: 2 are the picture and its mirror image, 4 both upside down too, 8 all of these with rows as columns.

    A model without a sense of orientation errs otherwise in each (Ronneberger et al. 2015 average so over their test set).
    """
    if views == 1:
        outputs: Tensor = model_outputs(model, batch)
        return outputs
    found = []
    pixels = batch.inputs["ids"]
    for axes, turned in product(_FLIPS[:views], (False, True)[: 1 + (views == 8)]):
        seen = pixels.flip(axes)
        said = model_outputs(model, replace(batch, inputs={**batch.inputs, "ids": seen.mT if turned else seen}))
        found.append((said.mT if turned else said).flip(axes).softmax(1))
    return torch.stack(found).mean(0)


def likeliest(outputs: Tensor, size: Sequence[int]) -> Tensor:
    """(B, H, W): the number of each pixel's class, by scores (B, classes, h, w) for less or as many of them."""
    return F.interpolate(outputs, size=tuple(size), mode="bilinear", align_corners=False).argmax(1)


def _mean(shares: NDArray[np.float64]) -> float:
    """Over the classes that occur; NaN where none does."""
    return float(np.nanmean(shares)) if np.isfinite(shares).any() else float("nan")
