"""How the learning rate moves: a pure function from the optimizer step to a factor on the optimizer's `lr`.

Every schedule rises along a straight line for its first `warmup` steps. Steps count from 1.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from ..core.spec import Spec

Ratio = Annotated[float, Field(ge=0.0, le=1.0)]


class Schedule(Spec, role="schedule"):
    """`factor(step)` multiplies the optimizer's learning rate at that step."""

    warmup: Annotated[int, Field(ge=0)] = 0

    def factor(self, step: int, total: int | None = None, spent: float = 0.0) -> float:
        """The factor at a step.

        step:  the optimizer step, from 1.
        total: the steps of the whole run, for a schedule that ends.
        spent: the fraction of the time limit used so far, for a schedule that runs on time.
        """
        return self.rise(step)

    def rise(self, step: int) -> float:
        return min(1.0, step / self.warmup) if self.warmup else 1.0

    def check(self, max_steps: int | None, max_time: float | None) -> None:
        """Raises ValueError where the run's limits don't say what this schedule has to know."""


class Constant(Schedule, kind="constant"):
    """Warm-up, then 1."""


class InverseSquareRoot(Schedule, kind="inverse-square-root"):
    """The Transformer paper's schedule (Vaswani et al. 2017, equation 3), often called Noam.

    With w = warmup, in its peak form the factor is min(step / w, √(w / step)): 1 at the end of the warm-up, so that the
    optimizer's `lr` is the peak. With `d_model` given it is the paper's d_model^−0.5 · min(step^−0.5, step · w^−1.5),
    and `lr` is a scale on it (the paper's is 1). The two agree for lr_peak = lr_scale · (d_model · w)^−0.5.
    """

    warmup: Annotated[int, Field(ge=1)] = 4000
    d_model: Annotated[int, Field(ge=1)] | None = None

    def factor(self, step: int, total: int | None = None, spent: float = 0.0) -> float:
        if self.d_model is not None:
            return self.d_model**-0.5 * min(step**-0.5, step * self.warmup**-1.5)
        return min(step / self.warmup, math.sqrt(self.warmup / step))


class Decay(Schedule):
    """Warm-up, then a fall from 1 to `final_ratio` that is complete at the end of the run.

    By `unit` the end is `max_steps`, with progress p = (step − warmup) / (max_steps − warmup), or `max_time`, where p is
    the part of the limit that is used and the rise and the fall multiply. A run by time resumes with the time that its
    checkpoint recorded, but no two runs measure the same times: only a run by steps can be repeated bit for bit.
    """

    unit: Literal["steps", "time"] = "steps"
    final_ratio: Ratio = 0.0

    def factor(self, step: int, total: int | None = None, spent: float = 0.0) -> float:
        if self.unit == "time":
            progress = spent
        elif total is None:
            raise ValueError(f"the schedule {self.kind!r} needs the number of steps of the whole run")
        else:
            progress = (step - self.warmup) / max(total - self.warmup, 1)
        fall = self.fall(min(max(progress, 0.0), 1.0))
        return self.rise(step) * (self.final_ratio + (1.0 - self.final_ratio) * fall)

    def fall(self, progress: float) -> float:
        """From 1 at progress 0 to 0 at progress 1."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it falls")

    def check(self, max_steps: int | None, max_time: float | None) -> None:
        if self.unit == "steps" and max_steps is None:
            raise ValueError(
                f"the schedule {self.kind!r} falls until the last step and has to know it: set max_steps, or "
                "schedule.unit to 'time' together with max_time"
            )
        if self.unit == "time" and max_time is None:
            raise ValueError(f"the schedule {self.kind!r} with unit 'time' falls until the time limit: set max_time")


class Cosine(Decay, kind="cosine"):
    """Falls as (1 + cos πp) / 2 (Loshchilov & Hutter 2017, one cycle)."""

    final_ratio: Ratio = 0.1

    def fall(self, progress: float) -> float:
        return (1.0 + math.cos(math.pi * progress)) / 2.0


class Linear(Decay, kind="linear"):
    """Falls as 1 − p."""

    def fall(self, progress: float) -> float:
        return 1.0 - progress
