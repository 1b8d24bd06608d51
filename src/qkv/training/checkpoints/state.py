"""What a run remembers besides tensors: JSON-able, so that a checkpoint holds it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from ..early_stopping import BestEvaluation
from ..logging.metrics_file import from_json, to_json


@dataclass
class SkippedSteps:
    """Counts the optimizer steps that made no update.

    bad:       the loss or a gradient was NaN or infinite.
    empty:     every label was ignored, so there was nothing to learn from.
    overflows: fp16's loss scale was too high; an ordinary event, which lowers it.
    streak:    bad or empty steps in a row, up to now; `first` is where it began, `cause` what the last one was.
    """

    bad: int = 0
    empty: int = 0
    overflows: int = 0
    streak: int = 0
    first: int = 0
    cause: str = ""

    def updated(self) -> None:
        """A step that made its update ends the streak."""
        self.streak = 0

    def refuse(self, step: int, cause: Literal["bad", "empty"]) -> None:
        if cause == "bad":
            self.bad += 1
        else:
            self.empty += 1
        self.first = self.first if self.streak else step
        self.streak, self.cause = self.streak + 1, cause


@dataclass
class State:
    """Where a run is.

    step:      optimizer steps tried, those that made no update included.
    tokens:    real tokens trained on.
    elapsed:   seconds spent in this run, over all its sessions, evaluations and saves included.
    position:  the data stream's, after the last batch of the last step; None at the beginning.
    epoch_done: whether the last step was the last of a pass over the data.
    evaluated: the step of the last evaluation, and `metrics` what it gave.
    """

    step: int = 0
    tokens: int = 0
    elapsed: float = 0.0
    position: dict[str, Any] | None = None
    epoch_done: bool = False
    evaluated: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    best: BestEvaluation = field(default_factory=BestEvaluation)
    guard: SkippedSteps = field(default_factory=SkippedSteps)

    @property
    def epochs(self) -> float:
        """Passes over the training data, as far as the stream knows."""
        return (self.position or {}).get("passed") or 0.0

    def move(self, position: dict[str, Any]) -> None:
        """On to where the stream stands after a step."""
        before = self.epochs
        self.position = position
        self.epoch_done = int(self.epochs) > int(before)

    def to_dict(self) -> dict[str, Any]:
        return {**to_json(asdict(self)), "position": self.position}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> State:
        """Raises ValueError where a value is of another type, KeyError or TypeError where there is no such state."""
        return TypeAdapter(cls).validate_python({**from_json(data), "position": data["position"]})
