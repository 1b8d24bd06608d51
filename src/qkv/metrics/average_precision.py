"""Average precision of detected boxes, mAP and AP50 (COCO, Lin et al. 2014), by pycocotools."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from .display import register

register("map", "Mean AP", "fraction", higher_is_better=True)
register("map50", "AP at IoU 0.5", "fraction", higher_is_better=True)


def average_precision(
    images: list[dict[str, Any]], truths: list[dict[str, Any]], made: list[dict[str, Any]], classes: int
) -> tuple[float, float]:
    """AP over IoU 0.5 … 0.95, and AP at 0.5, of boxes in COCO's form; classes without an object are left out.

    Truths that are "ignored" but no crowd, as VOC has difficult ones, are matched by their IoU, each by any number.
    """
    if not made:
        return 0.0, 0.0  # pycocotools can't load none
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    class Ignoring(COCOeval):  # type: ignore[misc]
        """pycocotools knows crowds alone as ignored. IoU is computed before the first `evaluateImg`."""

        def evaluateImg(self, image: int, category: int, *limits: Any) -> Any:
            for truth in self._gts[image, category]:
                truth["iscrowd"] = truth["ignore"] = truth.get("ignored", truth["iscrowd"])
            return super().evaluateImg(image, category, *limits)

    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does
        known = COCO()
        categories = [{"id": k + 1, "name": str(k)} for k in range(classes)]
        known.dataset = {"info": {}, "images": images, "annotations": [*map(dict, truths)], "categories": categories}
        known.createIndex()
        judged = Ignoring(known, known.loadRes(made), "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return float(judged.stats[0]), float(judged.stats[1])
