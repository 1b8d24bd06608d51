"""Registry of how metrics are displayed: title, scale, and whether higher is better. Each metric registers its own.

    register("accuracy", scale="fraction", higher_is_better=True)

A metric defined outside qkv registers in the same way, before it is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..several import worded
from ..spec import brief

Scale = Literal["fraction", "correlation", "points", "number"]
"""fraction: 0 … 1, shown as a percentage; correlation: −1 … 1; points: two decimals, such as BLEU; else a number."""


@dataclass(frozen=True)
class Display:
    """How a metric is displayed.

    higher_is_better: None if neither direction is better.
    part:  whether it is a part of another metric, as precision is of F1; parts are left out of headlines and charts.
    about: a short description.
    """

    title: str
    scale: Scale = "number"
    higher_is_better: bool | None = None
    part: bool = False
    about: str = ""


DISPLAYS: dict[str, Display] = {}


@worded
def register(
    name: str,
    title: str = "",
    scale: Scale = "number",
    higher_is_better: bool | None = None,
    *,
    part: bool = False,
    about: str = "",
) -> None:
    """Set how a metric or a term of a loss is displayed. Raises ValueError if the name has another display."""
    display = Display(title or name.replace("_", " ").capitalize(), scale, higher_is_better, part, about)
    if DISPLAYS.setdefault(name, display) != display:
        raise ValueError(f"the metric {brief(name)} is already registered as {DISPLAYS[name]}; choose another name")


@worded
def display_of(name: str) -> Display:
    """Return how a metric is displayed; as a plain number if it is not registered."""
    return DISPLAYS.get(name) or Display(name.replace("_", " ").capitalize())


def qualities() -> list[str]:
    """Return the metrics of which higher is better, fractions before points, without parts of other metrics."""
    names = [name for name, one in DISPLAYS.items() if one.higher_is_better and not one.part]
    return sorted(names, key=lambda name: DISPLAYS[name].scale == "points")


def errors() -> list[str]:
    """Return the metrics of which lower is better."""
    return [name for name, one in DISPLAYS.items() if one.higher_is_better is False]
