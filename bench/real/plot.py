"""The plot of docs/results.md: each data set's first figure beside its baselines, if it is a score of 0 to 100."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..dots import Axis, Dot, dots
from . import Found, shown

FIGURE = "results.svg"
LEGEND = ("qkv", "baselines")
AXIS = Axis("score in % (BLEU and ROUGE as reported, correlations times 100)", (0, 20, 40, 60, 80, 100))
_WITHOUT = ("nll", "mse", "loss", "entropy", "wer")  # have no best value to draw towards


def figure(all_: Sequence[Found]) -> dict[str, str]:
    """The figure as SVG, by the name of its file."""
    rows = [row for one in all_ for row in _row(one)]
    return {FIGURE: dots("Scores on test data, beside baselines on the same split", rows, LEGEND, AXIS) + "\n"}


def _row(one: Found) -> Iterator[tuple[str, list[Dot]]]:
    (name, value), *others = one.figures.items()
    if any(word in name for word in _WITHOUT):
        return
    beside = [(key, number) for key, number in others if "scratch" in key or "random weights" in key]
    for baseline in one.baselines:
        key = next((key for key in (name, name.split()[0], f"macro_{name}") if key in baseline), None)
        beside += [(baseline["name"], baseline[key])] if key else []
    yield (
        f"{one.entry['name']}: {name.split()[0]}",
        [_dot(what, number, i > 0, name) for i, (what, number) in enumerate([("qkv", value), *beside])],
    )


def _dot(what: str, number: float, baseline: bool, name: str) -> Dot:
    return Dot(number if number > 1 else 100 * number, what, int(baseline), shown(number, name))
