"""compiled = eager: as one graph, outputs and gradients, dropout off; through Inductor too in the full
suite.

Compiling takes seconds, so the fast suite takes some values of each axis and the full one every pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from axes import BLOCKS, FAMILIES, HEADS, backends, named, patterns, positions, words
from selection import Combination, Contract
from small import alone, gradients, ids, model, packed, padded, randn, same, same_gradients

AXES = {
    "pattern": patterns(),
    "position": positions(),
    "backend": backends(),
    "family": words(*FAMILIES),
    "rows": words("plain", "left", "packed"),
    "result": words("loss", "logits"),
    "heads": named(HEADS),
    "block": named(BLOCKS),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Every combination is compiled by itself: what one leaves behind must neither help nor hinder the next."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compare(case: Combination, how: str, tolerance: float) -> None:
    built = model(case.family, case.pattern, case.position, case.backend, case.heads, case.block, layers=1)
    layout = {"plain": alone(7), "left": padded([5, 2], "left", 7), "packed": packed([[3, 4], [2, 5]], 7)}[case.rows]
    inputs: dict[str, Any] = {"ids": ids(2, 7, seed=1), "layout": layout}
    if case.family == "encoder-decoder":
        source = packed([[2, 1], [1, 3]], 4) if case.rows == "packed" else padded([4, 3], "right", 4)
        inputs = {"ids": ids(2, 4, seed=2), "layout": source, "target": inputs["ids"], "target_layout": layout}
    if case.result == "loss":
        inputs["labels"] = ids(2, 7, seed=3)
    compiled = torch.compile(built, backend=how, fullgraph=True)
    wanted, found = (outcome(f, inputs, layout.valid.expand(2, -1)) for f in (built, compiled))
    same(found, wanted, tolerance)
    found.backward()
    mine = gradients(built)
    wanted.backward()
    same_gradients(mine, gradients(built), tolerance)


def outcome(f: Any, inputs: dict[str, Any], real: torch.Tensor) -> torch.Tensor:
    """The loss, or a scalar of every logit at a real token."""
    out = f(**inputs)
    return out.loss if "labels" in inputs else (out * randn(*out.shape, seed=4))[real].square().sum()


@pytest.mark.contract(Contract(AXES, fast=0, whole=2, share=16))
def test_a_compiled_model_computes_the_same(case: Combination) -> None:
    compare(case, "aot_eager", 1e-9)


@pytest.mark.slow
@pytest.mark.contract(Contract(AXES, fast=1, whole=1))
def test_compiled_by_inductor(case: Combination) -> None:
    compare(case, "inductor", 1e-6)  # position tables are single precision, and fused arithmetic rounds them otherwise
