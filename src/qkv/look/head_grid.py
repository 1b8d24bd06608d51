"""Which layers and heads of a model are drawn in a report, and their weights as they are kept in JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

DIVERGED = "Weights that are not finite numbers are drawn empty: the training has diverged"
_MOST = 8  # layers, and heads of a layer


def chosen_heads(layers: Sequence[dict[str, Any]]) -> tuple[list[int], list[int], str]:
    """Return the layers and the heads to draw, and how many these are if not all are drawn.

    Of many layers, evenly spread ones are drawn, the first and the last among them; of many heads, the first ones.
    """
    count, heads = len(layers), max(len(layer["weights"]) for layer in layers)
    chosen = range(count) if count <= _MOST else (round(i * (count - 1) / (_MOST - 1)) for i in range(_MOST))
    of_layers = [f"{_MOST} of {count} layers"] if count > _MOST else []
    of_heads = [f"{_MOST} of {heads} heads"] if heads > _MOST else []
    return list(chosen), list(range(min(heads, _MOST))), " and ".join(of_layers + of_heads)


def diverged(layers: Sequence[dict[str, Any]]) -> str:
    """Return a note if weights are not finite numbers, which are drawn empty; "" otherwise."""
    if all(math.isfinite(w) for layer in layers for w in _numbers(layer["weights"])):
        return ""
    return DIVERGED


def _numbers(value: Any) -> Iterator[float]:
    if not isinstance(value, list):
        yield value
        return
    for part in value:
        yield from _numbers(part)


Numbers: TypeAlias = "float | list[Numbers]"


def rounded(value: Numbers) -> Numbers:
    """Round the numbers in nested lists to four decimals."""
    return [rounded(v) for v in value] if isinstance(value, list) else round(value, 4)
