"""That contenders do the same work: models of one size, losses that begin where an untrained model's must, and fall."""

from __future__ import annotations

import math
from typing import Any

SIZE = 0.01  # of the parameters: biases, norms and tables of positions are each library's own
BELOW, ABOVE = 0.5, 2.0  # nats from ln V; above it is where a tied table makes an untrained model repeat its input
FALLEN = 2.0  # nats that the mean of several first steps may lie below it


def same_size(facts: dict[str, dict[str, Any]]) -> None:
    """Raises AssertionError if parameter counts, as far as contenders tell them, are further apart than `SIZE`."""
    counts = {name: told["parameters"] for name, told in facts.items() if "parameters" in told}
    if counts:
        least, most = min(counts.values()), max(counts.values())
        assert most - least <= SIZE * most, f"these are not models of one size: {counts}"


def not_learning(kept: dict[str, Any], vocab_size: int, steps: int = 1) -> str:
    """Why a contender's losses don't look like a model's in training, from its record; empty if they are.

    Each of the record's losses is the mean of so many `steps`.
    """
    readings = [kept.get("first", {}), *kept["rounds"]]
    losses = [reading["values"]["loss"] for reading in readings if "loss" in reading.get("values", {})]
    if not losses:
        return "it told no loss"
    first, last, expected = losses[0], losses[-1], math.log(vocab_size)
    below = BELOW if steps == 1 else FALLEN
    if not expected - below <= first <= expected + ABOVE:
        return f"its loss began at {first:.2f}, and that of an untrained model is near {expected:.2f}"
    return "" if last < first else f"its loss did not fall: {first:.3f} at first, {last:.3f} at last"
