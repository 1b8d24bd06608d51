"""Average precision of object detection, mAP and AP50 (COCO, Lin et al. 2014), by pycocotools."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from ..optional_libraries import need
from ..several import worded
from .display import register

register("map", "Mean AP", "fraction", higher_is_better=True)
register("map50", "AP at IoU 0.5", "fraction", higher_is_better=True)


@worded
def average_precision(
    images: list[dict[str, Any]], truths: list[dict[str, Any]], detections: list[dict[str, Any]], classes: int
) -> tuple[float, float]:
    """Return AP over IoU 0.5 … 0.95, and AP at 0.5, of boxes in COCO's format; classes without an object are left out.

    "ignored" truths that are no crowd, such as VOC's difficult objects, are matched by IoU, each by any number of boxes.
    """
    if not detections:
        return 0.0, 0.0  # pycocotools can't load an empty list
    need("COCO's average precision", "pycocotools")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    class Ignoring(COCOeval):
        """pycocotools ignores crowds alone. It computes IoU before the first `evaluateImg`."""

        def evaluateImg(self, image: int, category: int, *limits: Any) -> Any:
            for truth in self._gts[image, category]:
                truth["iscrowd"] = truth["ignore"] = truth.get("ignored", truth["iscrowd"])
            return super().evaluateImg(image, category, *limits)

    with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress
        truth = COCO()
        categories = [{"id": k + 1, "name": str(k)} for k in range(classes)]
        truth.dataset = {"info": {}, "images": images, "annotations": [*map(dict, truths)], "categories": categories}
        truth.createIndex()
        evaluation = Ignoring(truth, truth.loadRes(detections), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return float(evaluation.stats[0]), float(evaluation.stats[1])
