"""Drawings of classification: one picture or frames, and a bar for each class."""

from __future__ import annotations

import re

from qkv.runs.tasks.image_classification.picture import scores


def test_bars_are_as_long_as_probabilities() -> None:
    shown = str(scores({"frames": ["AA=="], "scores": [["cat & dog", 0.75], ["owl", 0.25]]}))
    assert "cat &amp; dog: 75 %" in shown and "owl: 25 %" in shown and 'alt="picture"' in shown
    first, second = (float(width) for width in re.findall(r"<rect [^>]*width=\"([\d.]+)\"", shown))
    assert first == 3 * second


def test_frames_are_numbered() -> None:
    shown = str(scores({"frames": ["AA==", "AB=="], "scores": [["cat", 1.0]]}))
    assert 'alt="frame 1"' in shown and 'alt="frame 2"' in shown
