"""Warn of attention patterns by which a decoder sees the tokens that it is trained to predict."""

from __future__ import annotations

import json
import warnings
from typing import Any

from torch import nn

from ..nn.patterns.algebra import Pattern, spans
from ..nn.patterns.basic import causal
from .objective import Objective


def warn_of_lookahead(model: nn.Module, objective: Objective) -> None:
    """A warning for each pattern of the decoder that shows a query what comes after it, where that is to be predicted."""
    decoder = getattr(getattr(model, "spec", None), "decoder", None)
    if not objective.predicts_next or decoder is None:
        return
    seen: dict[Pattern, list[int]] = {}
    for i, block in enumerate(decoder.blocks):
        pattern = getattr(block.attention, "pattern", None)
        if isinstance(pattern, Pattern) and "attention" in block.sublayers():
            seen.setdefault(pattern, []).append(i)
    for pattern, at in seen.items():
        if pattern.looks_ahead():
            warnings.warn(
                f"the pattern {_in_yaml(pattern)} of decoder.blocks {spans(at)} lets a token see those after it, which the "
                f"objective {objective.kind!r} has it predict: the loss will be low, and what the model writes poor; in "
                f"Python take causal() & pattern, in a recipe {_in_yaml(causal() & pattern)}",
                stacklevel=3,
            )


def _in_yaml(pattern: Pattern) -> str:
    """A pattern as a recipe spells it, kinds without options by their name alone."""

    def short(value: Any) -> Any:
        if isinstance(value, list):
            return [short(item) for item in value]
        if not isinstance(value, dict):
            return value
        given = {name: short(item) for name, item in value.items() if item is not None}
        return given["kind"] if given.keys() == {"kind"} else given

    return json.dumps(short(pattern.to_dict())).replace('"', "")
