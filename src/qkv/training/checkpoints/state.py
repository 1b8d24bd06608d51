"""The state of a training besides tensors: counters, data position and best evaluation, kept in checkpoints as JSON."""

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
    streak:    the current number of bad or empty steps in a row; `first` is the first of them, `cause` the last one's.
    """

    bad: int = 0
    empty: int = 0
    overflows: int = 0
    streak: int = 0
    first: int = 0
    cause: str = ""

    def updated(self) -> None:
        """End the streak, after a step that made its update."""
        self.streak = 0

    def refuse(self, step: int, cause: Literal["bad", "empty"]) -> None:
        if cause == "bad":
            self.bad += 1
        else:
            self.empty += 1
        self.first = self.first if self.streak else step
        self.streak, self.cause = self.streak + 1, cause


@dataclass
class TrainingState:
    """Progress of a training.

    step:      optimizer steps tried, including steps without an update.
    tokens:    real tokens trained on.
    elapsed:   seconds of training over all sessions, with evaluations and saves.
    position:  position of the data stream after the last step; None at the beginning.
    epoch_done: whether the last step was the last of a pass over the data.
    evaluated: the step of the last evaluation; `metrics` are its results.
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
        """Set the stream's position after a step."""
        before = self.epochs
        self.position = position
        self.epoch_done = int(self.epochs) > int(before)

    def to_dict(self) -> dict[str, Any]:
        return {**to_json(asdict(self)), "position": self.position}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TrainingState:
        """Raises ValueError for a value of another type, KeyError or TypeError for data that is not a state."""
        return TypeAdapter(cls).validate_python({**from_json(data), "position": data["position"]})
