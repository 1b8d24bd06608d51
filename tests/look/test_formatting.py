"""Values of metrics as text, by their scale."""

from __future__ import annotations

from typing import Any

import pytest

import qkv.core.metrics.text
import qkv.runs.tasks.tagging.metric  # noqa: F401  (registers accuracy)
from qkv.core.metrics.display import DISPLAYS
from qkv.look.formatting import scaled, shown, taken


def test_a_value_is_shown_by_its_scale() -> None:
    correlation = next(name for name, display in DISPLAYS.items() if display.scale == "correlation")
    assert (
        shown("accuracy", 0.125) == "12.50 %"
        and shown("bleu", 27.456) == "27.46"
        and shown(correlation, -0.5) == "-0.500"
    )
    assert shown("accuracy", float("nan")) == "not finite" == shown("loss", float("inf"))
    assert scaled("accuracy", 0.25) == 25.0 and scaled(correlation, 0.5) == 50.0 and scaled("bleu", 27.0) == 27.0


@pytest.mark.parametrize(
    ("evaluation", "said"),
    [
        ({"examples": 1200}, "1,200 examples"),
        ({"examples": 12, "available": 12, "unit": "row"}, "12 rows"),
        ({"examples": 1, "available": 1}, "1 example"),
        ({"examples": 500, "available": 2000}, "500 of 2,000 examples"),
        ({"examples": 500, "available": None}, "the first 500 examples of more"),
    ],
)
def test_how_many_examples_were_evaluated(evaluation: dict[str, Any], said: str) -> None:
    assert taken(evaluation) == said
