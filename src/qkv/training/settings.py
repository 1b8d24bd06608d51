"""`Training`: settings of the training loop (optimizer, schedule, limits, checkpoints, logging)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ..core.device import short_name
from ..core.spec import Spec, brief
from .logging.wandb import WandB, read_wandb
from .mixed_precision import PrecisionChoice
from .optimizers import AdamW, NonNegative, Optimizer, Positive
from .optimizers.schedules import Decay, InverseSquareRoot, Schedule
from .weight_averaging import Average, LastCheckpoints, NoAverage

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhd]\s*)+")


def read_seconds(value: object) -> Any:
    """A duration as seconds: a number is one already; "90s", "10m", "1h30m" and "2d" are read."""
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    if _DURATION.fullmatch(text):
        return sum(float(n) * _UNITS[unit] for n, unit in re.findall(r"([\d.]+)([smhd])", text))
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{brief(value)} is not a duration; write seconds, or 90s, 10m, 1h30m, 2d") from None


def read_average(value: object) -> object:
    """A bare number n stands for the mean of the last n checkpoints, 0 for none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return NoAverage() if value == 0 else {"kind": "checkpoints", "last": value}
    return value


def read_compile(value: object) -> object:
    """Check that the value is true, false or "auto"; raises ValueError with one sentence."""
    if value != "auto" and not isinstance(value, bool):
        raise ValueError(f"it is true, false or auto, not {brief(value)}")
    return value


def read_threads(value: object) -> object:
    """Check that the value is a number of threads or "auto"; raises ValueError with one sentence."""
    if value != "auto" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"it is a number of threads from 1, or auto, not {brief(value)}")
    return value


def read_every(value: object) -> object:
    """Check that the value is a number of steps, "epoch" or null; raises ValueError with one sentence."""
    if value is not None and value != "epoch" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"it is a number of steps from 1, or epoch, or null, not {brief(value)}")
    return value


Count = Annotated[int, Field(ge=1)]
Every = Annotated[int | Literal["epoch"] | None, BeforeValidator(read_every)]


class Training(Spec):
    """Settings of a training run. Steps are optimizer steps; each takes `accumulate` batches.

    precision:   precision of a step: "fp32", "bf16" or "fp16"; "auto" is bf16 if the device supports it natively and it is
                 faster, see `mixed_precision.choose`. Weights, their gradients and evaluations are always fp32.
    max_steps, max_epochs, max_time: the run ends at the first of them (an epoch is one pass over the training data, time is
                 in seconds, or "10m"); None is no limit. If max_epochs is given, max_steps is None unless it is given too.
    clip_norm, clip_value: see `gradients.clipping.update`; None turns clipping off.
    eval_every, save_every: in steps, or "epoch" for the end of each epoch; None evaluates or saves only at the end. A new
                 best evaluation is always saved.
    keep:        number of checkpoints to keep besides the best one.
    async_save:  write checkpoints in the background, from a copy in the host's memory, while training continues. A run
                 waits for its last checkpoint.
    metric, mode: the evaluation's metric that selects the best weights, and whether "min" or "max" is better.
    patience:    stop early after this many consecutive evaluations that didn't beat the best by more than `min_delta`;
                 None never stops early. An evaluation equal to the best doesn't beat it.
    average:     the average of its weights that the run delivers, see `average`; a number n is the last n checkpoints.
    final:       deliver the weights of the "best" evaluation (the last, if nothing was evaluated) or the "last" weights.
                 The mean of the last checkpoints is delivered as it is.
    max_bad_steps: stop after this many consecutive steps without an update.
    compile:     run the model through torch.compile. "auto" compiles if the run is long enough to gain time. This is decided
                 before the run, by `qkv.training`, so `fit` alone reads "auto" as false.
    threads:     number of threads on a CPU. "auto" measures the fastest number at the start and when the pace changes, see
                 `threads`; OMP_NUM_THREADS overrides it.
    recompute:   activation checkpointing: "blocks" stores only each block's input and computes the rest again in the
                 backward pass, "alternate" only for every other block. This saves memory and takes up to a third more time.
    tensorboard: also write files for TensorBoard.
    wandb:       also log to Weights & Biases: true, or settings, see `logging.wandb`.
    """

    optimizer: Optimizer = AdamW()
    schedule: Schedule = InverseSquareRoot()
    precision: Annotated[PrecisionChoice, BeforeValidator(short_name)] = "auto"
    accumulate: Count = 1
    clip_norm: Positive | None = 1.0
    clip_value: Positive | None = None
    max_steps: Count | None = 10_000
    max_epochs: Count | None = None
    max_time: Annotated[Positive | None, BeforeValidator(read_seconds)] = None
    eval_every: Every = 500
    save_every: Every = 500
    log_every: Count = 10
    keep: Count = 3
    async_save: bool = False
    metric: str = "loss"
    mode: Literal["min", "max"] = "min"
    patience: Count | None = None
    min_delta: NonNegative = 0.0
    average: Annotated[Average, BeforeValidator(read_average)] = NoAverage()
    final: Literal["best", "last"] = "best"
    max_bad_steps: Count = 10
    compile: Annotated[bool | Literal["auto"], BeforeValidator(read_compile)] = "auto"
    threads: Annotated[Count | Literal["auto"], BeforeValidator(read_threads)] = "auto"
    recompute: Literal["none", "alternate", "blocks"] = "none"
    tensorboard: bool = False
    wandb: Annotated[WandB | None, BeforeValidator(read_wandb)] = None

    @model_validator(mode="before")
    @classmethod
    def _by_epochs(cls, value: Any) -> Any:
        """The default of max_steps is for runs whose length nobody gave."""
        if isinstance(value, Mapping) and value.get("max_epochs") is not None and "max_steps" not in value:
            return {**value, "max_steps": None}
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.max_steps, self.max_epochs, self.max_time, self.patience) == (None,) * 4:
            raise ValueError("nothing would end this run: set max_steps, max_epochs, max_time or patience")
        if isinstance(self.average, LastCheckpoints) and self.keep < self.average.last:
            raise ValueError(
                f"the mean of the last {self.average.last} checkpoints needs keep to be that much too, not {self.keep}"
            )
        self.schedule.check(self.max_steps, self.max_time, self.max_epochs)
        return self

    def lr(self, step: int, elapsed: float, epochs: float) -> float:
        """The learning rate of a step that ends so many seconds and passes over the data after the beginning."""
        spent = epochs / self.max_epochs if self.max_epochs else 0.0
        if self.max_time and getattr(self.schedule, "unit", "time") == "time":
            spent = max(spent, elapsed / self.max_time)
        return self.optimizer.lr * self.schedule.factor(step, self.max_steps, min(spent, 1.0))

    @property
    def falls_by_epochs(self) -> bool:
        """Whether the learning rate depends on how many of its epochs a run has done."""
        return self.max_epochs is not None and isinstance(self.schedule, Decay) and self.schedule.steps is None

    @property
    def paced(self) -> bool:
        """Whether the schedule follows the pace, because epochs or the time limit may end the training."""
        return self.falls_by_epochs or (isinstance(self.schedule, Decay) and self.schedule.unit == "time")
