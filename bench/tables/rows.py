"""One training step of an encoder–decoder on full rows, if there is no padding to save."""

from __future__ import annotations

from typing import Any

from ..contenders import shapes
from ..lockstep import Case
from ..results import Result
from . import steps
from .steps import OURS, OWN
from .table import Table, errors, profiles

WHO: steps.Who = {
    OURS: ("bench.contenders.ours_pairs:FullRows", "qkv"),
    "Hugging Face Marian": ("bench.contenders.marian:FullRows", "huggingface"),
    "nn.Transformer": ("bench.contenders.nntransformer:FullRows", "qkv"),
    "x-transformers": ("bench.contenders.xtransformers:FullRows", "x-transformers"),
}


def cases(quick: bool) -> list[Case]:
    shape = shapes.tiny_pairs() if quick else shapes.pairs()
    tokens = shape["batch"] * (shape["source"] + shape["target"])
    return steps.cases(WHO, shape, shapes.pair_flops(shape), tokens)


def render(result: Result) -> str:
    parts = steps.tables(result, lambda key: key["precision"])
    parts.append("\n".join([*_verdicts(result), *errors(result)]))
    found = profiles(result, OURS, _title)
    if found:
        parts.append("Where qkv's step spends its time (share of self time, by operation):\n\n" + "\n".join(found))
    return "\n\n".join(part for part in parts if part)


def _title(key: dict[str, Any]) -> str:
    return f"{key['precision']}, {key['mode']}"


def _verdicts(result: Result) -> list[str]:
    keys = [{"precision": precision, "mode": mode} for precision in steps.PRECISIONS for mode in steps.MODES]
    return [line for key in keys for line in steps.advantage_line(result, _title(key), 1.0, **key, allocator=OWN)]


TABLE = Table("rows", 5, cases, render)
