"""Every axis with every optimizer and every kind of shared parameter: the steps of one rank in float64, or one sentence.

The tables in docs/scale.md are made here: `python tests/training/parallel/test_matrix.py` prints them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fast_subset import fast
from same_steps import MOE, alone, compare, take_steps

from qkv.nn.cost.plan.rules import check_optimizer
from qkv.training.optimizers.base import Optimizer

pytestmark = pytest.mark.xdist_group("ranks")
AXES: dict[str, dict[str, Any]] = {
    "data": {"data": 2},
    "zero 1": {"shard": 2, "zero": 1},
    "zero 2": {"shard": 2, "zero": 2},
    "zero 3": {"shard": 2, "zero": 3},
    "tensor": {"tensor": 2},
    "context": {"context": 2},
    "expert": {"expert": 2},
    "pipeline": {"pipeline": 2},
}
OPTIMIZERS = ("adagrad", "adafactor", "adamw", "adamw-8bit", "lion", "muon", "sgd")
OPTIONS = {"adamw-8bit": ", block: 16, min_size: 64"}
# The family of each kind of shared parameters, and what is replaced in its spec.
SHARED: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing": ("decoder", {"head.tied": False}),
    "table and output layer": ("decoder", {}),
    "two tables and output layer": ("encoder-decoder", {}),
    "layers": ("decoder", {"decoder.order": [0, 1, 1, 0]}),
    "position bias": ("decoder", {"decoder.position": "t5"}),
}
EQUAL, REFUSED = "equal", "refused"
DOCS = Path(__file__).parents[3] / "docs" / "scale.md"


def outcome(axis: str, optimizer: str) -> str:
    """Whether an axis serves an optimizer, by the rule that training and planning share."""
    try:
        check_optimizer(AXES[axis].get("zero", 0), optimizer, Optimizer.from_dict({"kind": optimizer}).elementwise)
    except ValueError:
        return REFUSED
    return EQUAL


def tables() -> list[str]:
    """The matrices in Markdown."""
    by_optimizer = [["", *(f"`{optimizer}`" for optimizer in OPTIMIZERS)]]
    by_optimizer += [[axis, *(outcome(axis, optimizer) for optimizer in OPTIMIZERS)] for axis in AXES]
    by_shared = [["", *SHARED], *([axis, *(EQUAL for _ in SHARED)] for axis in AXES)]
    return [in_markdown(rows) for rows in (by_optimizer, by_shared)]


def in_markdown(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:]))


def test_the_docs_have_these_matrices() -> None:
    docs = DOCS.read_text(encoding="utf-8")
    assert all(table in docs for table in tables())


CELLS = [(axis, optimizer) for axis in AXES for optimizer in OPTIMIZERS]


@pytest.mark.parametrize("cell", fast(CELLS, ("zero 3", "muon")), ids=", ".join)
def test_every_optimizer_on_every_axis_equals_one_rank_or_is_refused(two: Any, cell: tuple[str, str]) -> None:
    axis, optimizer = cell
    settings = (f"training.optimizer={{kind: {optimizer}, lr: 0.01{OPTIONS.get(optimizer, '')}}}",)
    settings += ("training.accumulate=2",) if axis == "pipeline" else ()
    if outcome(*cell) == REFUSED:
        message = f"the optimizer '{optimizer}' needs whole parameters, and zero=3 divides them; give scale.zero=2"
        assert all(message in said for said in two.run(refusal, AXES[axis], settings))
    else:
        compare(two.run(take_steps, "moe", AXES[axis], settings), alone("moe", settings))


SHARING = [(axis, shared) for axis in AXES for shared in SHARED]


@pytest.mark.parametrize("cell", fast(SHARING, ("pipeline", "layers"), ("zero 3", "layers")), ids=", ".join)
def test_shared_parameters_equal_one_ranks(two: Any, cell: tuple[str, str]) -> None:
    axis, shared = cell
    family, changes = SHARED[shared]
    experts = {"*.blocks.*.feedforward": "MOE"} if axis == "expert" else {}
    replaced = json.dumps({**changes, **experts}).replace('"MOE"', MOE)
    settings = (f"model.replace={replaced}",) + (("training.accumulate=2",) if axis == "pipeline" else ())
    compare(two.run(take_steps, family, AXES[axis], settings), alone(family, settings))


def refusal(ranks: Any, scale: dict[str, Any], settings: tuple[str, ...]) -> str:
    """The message with which a layout is refused."""
    with pytest.raises(ValueError) as raised:
        take_steps(ranks, "moe", scale, settings)
    return str(raised.value)


if __name__ == "__main__":
    print("\n\n".join(tables()))
