"""Every axis with every optimizer: the steps of one rank in float64, or one sentence.

The table in docs/scale.md is made here: `python tests/training/parallel/test_matrix.py` prints it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fast_subset import fast
from same_steps import alone, compare, take_steps

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
EQUAL, REFUSED = "equal", "refused"
DOCS = Path(__file__).parents[3] / "docs" / "scale.md"


def outcome(axis: str, optimizer: str) -> str:
    """Whether an axis serves an optimizer, by the rule that training and planning share."""
    try:
        check_optimizer(AXES[axis].get("zero", 0), optimizer, Optimizer.from_dict({"kind": optimizer}).elementwise)
    except ValueError:
        return REFUSED
    return EQUAL


def table() -> str:
    """The matrix in Markdown."""
    rows = [[axis, *(outcome(axis, optimizer) for optimizer in OPTIMIZERS)] for axis in AXES]
    head = ["", *(f"`{optimizer}`" for optimizer in OPTIMIZERS)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def test_the_docs_have_this_matrix() -> None:
    assert table() in DOCS.read_text(encoding="utf-8")


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


def refusal(ranks: Any, scale: dict[str, Any], settings: tuple[str, ...]) -> str:
    """The message with which a layout is refused."""
    with pytest.raises(ValueError) as raised:
        take_steps(ranks, "moe", scale, settings)
    return str(raised.value)


if __name__ == "__main__":
    print(table())
