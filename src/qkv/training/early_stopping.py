"""Early stopping: the best evaluation so far, and how many evaluations since then have not beaten it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class BestEvaluation:
    """The best evaluation so far. `stale` counts the evaluations since the last improvement."""

    step: int = 0
    value: float = float("nan")
    metrics: dict[str, float] = field(default_factory=dict)
    stale: int = 0

    def offer(self, step: int, value: float, metrics: dict[str, float], mode: str, min_delta: float) -> bool:
        """Record an evaluation and return whether it becomes the best.

        It does if it is better by more than `min_delta`, or exactly equal, since later weights are trained longer. An equal
        value still counts as stale. NaN is never better.
        """
        gain = self.value - value if mode == "min" else value - self.value
        better = value == value and (not self.step or gain > min_delta)
        self.stale = 0 if better else self.stale + 1
        if better or value == self.value:
            self.step, self.value, self.metrics = step, value, dict(metrics)
            return True
        return False
