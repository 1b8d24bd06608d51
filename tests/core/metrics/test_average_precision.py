"""Average precision by pycocotools: perfect, missing and ignored boxes."""

from __future__ import annotations

from typing import Any

import pytest

from qkv.core.metrics.average_precision import average_precision

IMAGES = [{"id": 1, "height": 100, "width": 100}]


def box(left: float, side: float = 40.0, **more: Any) -> dict[str, Any]:
    area = {"bbox": [left, 10.0, side, side], "area": side * side, "iscrowd": 0}
    return {"image_id": 1, "category_id": 1, **area, **more}


def test_perfect_boxes_have_1_and_a_missing_one_halves_it() -> None:
    truths = [box(5, id=1), box(55, id=2)]
    perfect = [box(5, score=0.9), box(55, score=0.8)]
    assert average_precision(IMAGES, truths, perfect, 1) == pytest.approx((1, 1))
    assert average_precision(IMAGES, truths, perfect[:1], 1) == pytest.approx((51 / 101, 51 / 101))
    assert average_precision(IMAGES, truths, [], 1) == (0, 0)


def test_boxes_on_an_ignored_object_do_not_count() -> None:
    detections = [box(55, score=0.9), box(55, score=0.8), box(5, score=0.7)]
    counted = [box(5, id=1, ignored=0), box(55, id=2, ignored=0)]
    ignored = [box(5, id=1, ignored=0), box(55, id=2, ignored=1)]
    assert average_precision(IMAGES, ignored, detections, 1) == pytest.approx((1, 1))
    assert average_precision(IMAGES, counted, detections, 1)[0] < 1
