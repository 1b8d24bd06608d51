"""Predictions of detection: edges in pixels, the most probable object first, and a picture as a file."""

from __future__ import annotations

import numpy as np
import pytest

from qkv.runs.tasks.detection.metric import Detections
from qkv.runs.tasks.detection.predict import check_threshold, detection_prediction


def test_shares_become_pixels() -> None:
    boxes = np.array([[0.0, 0.5, 0.25, 1.0], [0.5, 0.0, 1.0, 0.5]], np.float32)
    found = Detections(np.array([1, 0]), boxes, np.array([0.5, 0.75], np.float32)).surest_first()
    read = lambda path: np.zeros((3, 20, 40), np.uint8)  # noqa: E731
    made = detection_prediction(("cat", "dog"), read, "folder/a.png", (20, 40), found)
    assert made.value == [("cat", 0.75, (20.0, 0.0, 40.0, 10.0)), ("dog", 0.5, (0.0, 10.0, 10.0, 20.0))]
    assert made.fields["size"] == [20, 40] and made.fields["objects"][0]["class"] == "cat"
    assert made.text.splitlines()[1] == "  cat 0.75 at 20 0 40 10"
    assert made.draw is not None
    ((suffix, drawn),) = made.draw().items()
    assert suffix == ".boxes.svg" and b"dog" in drawn


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan")])
def test_a_threshold_is_a_probability(threshold: float) -> None:
    with pytest.raises(ValueError, match="the threshold is a probability, from 0 to 1"):
        check_threshold(threshold)
    check_threshold(0.0)
