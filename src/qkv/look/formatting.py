"""Format values of metrics and numbers of evaluated examples for reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..core.metrics.display import display_of
from ..core.spec import counted
from .svg import readable


def taken(evaluation: Mapping[str, Any]) -> str:
    """Return how many examples, or rows of running text, were evaluated, and of how many."""
    examples, available, unit = evaluation["examples"], evaluation.get("available"), evaluation.get("unit", "example")
    if "available" not in evaluation or available == examples:  # a file of an older version does not say
        return counted(examples, unit)
    if available:
        return f"{examples:,} of {counted(available, unit)}"
    return f"the first {counted(examples, unit)} of more"


def scaled(name: str, value: float) -> float:
    """Return a metric's value for a chart, with fractions as percentages."""
    return 100 * value if display_of(name).scale in ("fraction", "correlation") else value


def shown(name: str, value: float) -> str:
    """Return a metric's value as text."""
    if not math.isfinite(value):
        return "not finite"
    match display_of(name).scale:
        case "correlation":
            return f"{value:.3f}"
        case "fraction":
            return f"{100 * value:.2f} %"
        case "points":
            return f"{value:.2f}"
    return readable(value)
