"""Learning-rate schedules: pure functions from the optimizer step to a factor on the optimizer's `lr`.

Every schedule rises along a straight line for its first `warmup` steps. Steps count from 1.

If the run ends by time or by epochs, nobody knows beforehand how many steps it takes. A schedule that falls then takes
the pace so far for that of the whole: after `step` steps and the part `spent` of the run, the whole has step / spent.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ...core.spec import Spec

Ratio = Annotated[float, Field(ge=0.0, le=1.0)]
LONGEST_RISE = 0.2  # of a run whose steps aren't known beforehand: the warm-up takes no more of it


class Schedule(Spec, role="schedule"):
    """`factor(step)` multiplies the optimizer's learning rate at that step."""

    warmup: Annotated[int, Field(ge=0)] = 0

    def factor(self, step: int, total: float | None = None, spent: float = 0.0) -> float:
        """The factor at a step.

        step:  the optimizer step, from 1.
        total: the steps of the whole run, for a schedule that ends; None if they aren't known.
        spent: the part of the run that is done after this step, by time or by epochs, if its end is known by these.
        """
        return self.rise(step)

    def rise(self, step: int) -> float:
        return min(1.0, step / self.warmup) if self.warmup else 1.0

    def check(self, max_steps: int | None, max_time: float | None, max_epochs: int | None = None) -> None:
        """Raises ValueError if the run's limits don't say what this schedule has to know, or waste most of it."""

    def hindsight(self, steps: int, paced: bool = False) -> str | None:
        """A note on the schedule of a training that ended after `steps`, or None; `paced` as in `remark`."""
        if steps >= self.warmup:
            return None
        return (
            f"the run ended at step {steps:,}, inside its warm-up of {self.warmup:,} steps, so the learning rate never "
            "reached its peak; shorten schedule.warmup or train longer"
        )

    def remark(self, max_steps: int | None, paced: bool = False) -> str | None:
        """A note on the schedule of a training of this length, before it starts, or None.

        paced: the length also depends on time or epochs, so the schedule follows the pace, see the module's head.
        """
        if max_steps is None or self.warmup < max_steps:
            return None
        return (
            f"the learning rate rises for {self.warmup:,} steps and the run ends after {max_steps:,}, "
            "so it never reaches its peak; a full run needs a shorter schedule.warmup or more max_steps"
        )


class Constant(Schedule, kind="constant"):
    """Warm-up, then 1."""


class InverseSquareRoot(Schedule, kind="inverse-square-root"):
    """The Transformer paper's schedule (Vaswani et al. 2017, equation 3), often called Noam.

    With w = warmup, in its peak form the factor is min(step / w, √(w / step)): 1 at the end of the warm-up, so the
    optimizer's `lr` is the peak. With `d_model` given it is the paper's d_model^−0.5 · min(step^−0.5, step · w^−1.5),
    and `lr` is a scale on it (the paper's is 1). The two agree for lr_peak = lr_scale · (d_model · w)^−0.5.
    """

    warmup: Annotated[int, Field(ge=1)] = 4000
    d_model: Annotated[int, Field(ge=1)] | None = None

    def factor(self, step: int, total: float | None = None, spent: float = 0.0) -> float:
        if self.d_model is not None:
            return self.d_model**-0.5 * min(step**-0.5, step * self.warmup**-1.5)
        return min(step / self.warmup, math.sqrt(self.warmup / step))


class Decay(Schedule):
    """Warm-up, then a fall from 1 to `final_ratio`, complete at the end of the run.

    With `unit` "steps", the fall ends at `max_steps` or `max_epochs`, whichever comes first; with "time", at `max_time`.
    Its progress is p = (step − warmup) / (total − warmup). With time and epochs, the total is estimated from the pace so
    far, and the warm-up ends after a fifth of the run at the latest. A run by time resumes with the time that its checkpoint
    recorded. Two runs never measure the same times, so only runs by steps and by epochs can be repeated bit for bit.

    `steps` replaces max_steps if the decay should end before the run, or if the run has no set end; afterwards the factor
    stays at `final_ratio`.
    """

    unit: Literal["steps", "time"] = "steps"
    steps: Annotated[int, Field(ge=1)] | None = None
    final_ratio: Ratio = 0.0

    @model_validator(mode="after")
    def _rises_before_it_falls(self) -> Self:
        if self.steps is not None and self.steps <= self.warmup:
            raise ValueError(f"the fall ends at step {self.steps}, before the {self.warmup} steps of warm-up do")
        return self

    def factor(self, step: int, total: float | None = None, spent: float = 0.0) -> float:
        pace = step / spent if spent and (self.unit == "time" or self.steps is None) else math.inf
        end, warmup = min(self._end(total, spent), pace), min(self.warmup, LONGEST_RISE * pace)
        rise = min(1.0, step / warmup) if warmup else 1.0
        fall = self.fall(min(max(self.progress(step, end, warmup), 0.0), 1.0))
        return rise * (self.final_ratio + (1.0 - self.final_ratio) * fall)

    def progress(self, step: int, end: float, warmup: float) -> float:
        """p, which may lie outside of [0, 1]; at step `end` it is 1."""
        if step >= end:
            return 1.0
        return 0.0 if math.isinf(end) else (step - warmup) / max(end - warmup, 1.0)

    def _end(self, total: float | None, spent: float) -> float:
        """The end that is known beforehand."""
        end = None if self.unit == "time" else total if self.steps is None else self.steps
        if end is None and self.unit != "time" and not spent:
            raise ValueError(f"the schedule {self.kind!r} needs the number of steps of the whole run")
        return math.inf if end is None else float(end)

    def fall(self, progress: float) -> float:
        """From 1 at progress 0 to 0 at progress 1."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it falls")

    def check(self, max_steps: int | None, max_time: float | None, max_epochs: int | None = None) -> None:
        if self.unit == "time" and self.steps is not None:
            raise ValueError(f"the schedule {self.kind!r} falls by time, so its steps={self.steps} say nothing")
        if self.unit == "steps" and self.steps is None and max_steps is None and max_epochs is None:
            raise ValueError(
                f"the schedule {self.kind!r} falls until the last step and has to know it: set max_steps, max_epochs or "
                "schedule.steps, or schedule.unit to 'time' together with max_time"
            )
        if self.unit == "time" and max_time is None:
            raise ValueError(f"the schedule {self.kind!r} with unit 'time' falls until the time limit: set max_time")
        if self.steps is not None and self.final_ratio == 0.0 and (max_steps is None or self.steps < max_steps):
            end = "without a set end" if max_steps is None else f"to step {max_steps}"
            raise ValueError(
                f"the schedule {self.kind!r} reaches 0 at step {self.steps}, but the run continues {end} and would learn "
                "nothing more: set schedule.final_ratio above 0, or end the run there with max_steps"
            )

    def remark(self, max_steps: int | None, paced: bool = False) -> str | None:
        paced = paced or self.unit == "time"  # the warm-up then takes a fifth of the training at most
        return None if paced else super().remark(max_steps)

    def hindsight(self, steps: int, paced: bool = False) -> str | None:
        risen = math.ceil(LONGEST_RISE * steps)
        if not (paced or self.unit == "time") or risen >= self.warmup:
            return super().hindsight(steps)
        return (
            f"the run took {steps:,} steps, too few for a warm-up of {self.warmup:,}, so the learning rate rose in the "
            f"first fifth of the run (about {risen:,} steps)"
        )


class CosineDecay(Decay, kind="cosine"):
    """Falls as (1 + cos πp) / 2 (Loshchilov & Hutter 2017), `cycles` times, each from 1 again."""

    final_ratio: Ratio = 0.1
    cycles: Annotated[int, Field(ge=1)] = 1

    def fall(self, progress: float) -> float:
        within = progress if progress == 1.0 else progress * self.cycles % 1.0
        return (1.0 + math.cos(math.pi * within)) / 2.0


class LinearDecay(Decay, kind="linear"):
    """Falls as 1 − p."""

    def fall(self, progress: float) -> float:
        return 1.0 - progress


class Polynomial(Decay, kind="polynomial"):
    """Falls as (1 − p)^power. BERT's is `linear`; a power of 2 or more spends longer at small rates."""

    power: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 2.0

    def fall(self, progress: float) -> float:
        return (1.0 - progress) ** self.power


class WSD(Decay, kind="wsd"):
    """Warm-up, stable, decay (Hu et al. 2024): 1 until the last share `decay` of the run, and in that a fall.

    With q the part of the whole run that is done and p = (q − (1 − decay)) / decay, the fall is 1 − p ("linear"),
    (1 + cos πp) / 2 ("cosine") or 1 − √p ("1-sqrt", the best in Hägele et al. 2024). Unlike the cosine's, a checkpoint of
    the stable part belongs to runs of every length: resume it with more max_steps, and only the decay moves.
    """

    decay: Annotated[float, Field(gt=0.0, le=1.0)] = 0.2
    shape: Literal["1-sqrt", "linear", "cosine"] = "1-sqrt"

    def progress(self, step: int, end: float, warmup: float) -> float:
        stable = 1.0 - self.decay
        return (step / end - stable) / (1.0 - stable)

    def fall(self, progress: float) -> float:
        if self.shape == "cosine":
            return (1.0 + math.cos(math.pi * progress)) / 2.0
        return 1.0 - (math.sqrt(progress) if self.shape == "1-sqrt" else progress)

    def remark(self, max_steps: int | None, paced: bool = False) -> str | None:
        end = max_steps if self.steps is None else self.steps
        if end is None or paced or self.unit == "time" or not (1.0 - self.decay) * end < self.warmup < end:
            return super().remark(max_steps, paced)
        begin = math.floor((1.0 - self.decay) * end)
        return f"the learning rate begins to fall at step {begin:,}, while it still rises until step {self.warmup:,}"
