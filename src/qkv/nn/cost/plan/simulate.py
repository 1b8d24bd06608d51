"""Step time and MFU from few to many ranks: in weak scaling the batch grows with the ranks, in strong scaling it doesn't."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .layout import RankLayout, check
from .search import RankPlan, plan, search
from .step import Machine
from .work import ModelWork

Kind = Literal["weak", "strong"]


@dataclass(frozen=True)
class FastestLayout:
    """The fastest layout of a number of ranks. `plan` is None if nothing fits, and `why` says so."""

    kind: Kind
    ranks: int
    batch: int
    plan: RankPlan | None
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        if self.plan is None:
            return {"scaling": self.kind, "ranks": self.ranks, "batch": self.batch, "why": self.why}
        seen = {"layout": str(self.plan.layout), **self.plan.step.to_dict(), "memory": self.plan.memory.to_dict()}
        return {"scaling": self.kind, "ranks": self.ranks, "batch": self.batch, **seen}


def sizes(first: int, last: int) -> list[int]:
    """Numbers of ranks that double from the first to the last."""
    found = [first]
    while found[-1] * 2 <= last:
        found.append(found[-1] * 2)
    return found


def simulate(
    model: ModelWork,
    machine: Machine,
    ranks: Sequence[int],
    batch: int,
    each: Callable[[FastestLayout], None] = lambda point: None,
) -> list[FastestLayout]:
    """Search the fastest layout for each number of ranks: in weak scaling with `batch` rows for the first number of ranks
    and more in proportion, in strong scaling with as many rows as the middle one has in weak scaling. `each` is called
    with every point.

    Raises ValueError if nothing fits on any number of ranks.
    """
    whole, points = batch * ranks[len(ranks) // 2] // ranks[0], []
    kinds: tuple[Kind, Kind] = ("weak", "strong")
    for kind in kinds:
        for number in ranks:
            rows = batch * number // ranks[0] if kind == "weak" else whole
            try:
                point = FastestLayout(kind, number, rows, search(model, machine, number, rows)[0])
            except ValueError as error:
                point = FastestLayout(kind, number, rows, None, str(error))
            points.append(point)
            each(point)
    if all(point.plan is None for point in points):
        raise ValueError(points[-1].why)
    return points


def given(model: ModelWork, machine: Machine, layout: RankLayout) -> RankPlan:
    """Predict a layout that the user gave. Raises ValueError if it does not fit the model."""
    check(layout, model)
    return plan(model, layout, machine)
