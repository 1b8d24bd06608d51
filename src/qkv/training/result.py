"""The result of a training: why it ended and what it delivered, or that it diverged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..core.spec import counted
from .checkpoints.state import TrainingState

Ending = Literal["max_steps", "max_epochs", "max_time", "patience", "data", "interrupted", "bad steps"]

_WORDS: dict[Ending, str] = {
    "max_steps": "all steps are done",
    "max_epochs": "all epochs are done",
    "max_time": "the time is up",
    "patience": "stopped early, as no evaluation beat the best one any more,",
    "data": "the data came to its end",
    "interrupted": "interrupted",
    "bad steps": "too many steps in a row made no update",
}


@dataclass(frozen=True)
class TrainingResult:
    """What `fit` returns.

    ending:     why it stopped; `interrupted` is the one that waits to be resumed.
    state:      steps, tokens, seconds, the last and the best evaluation, and the counts of steps without update.
    metrics:    the evaluation of the weights delivered; empty if nothing was evaluated.
    checkpoint: the newest checkpoint, None if none was saved.
    weights:    the delivered weights' file; `source` says which they are.
    """

    ending: Ending
    state: TrainingState
    metrics: dict[str, float]
    checkpoint: Path | None
    weights: Path
    source: str

    @property
    def interrupted(self) -> bool:
        return self.ending == "interrupted"

    def __str__(self) -> str:
        state, guard = self.state, self.state.guard
        steps = counted(state.step, "step")
        said = [f"{_WORDS[self.ending]} after {steps} and {state.elapsed:,.0f} s"]
        said += (
            [f"{counted(guard.bad, 'step')} with a NaN or infinite loss or gradient made no update"]
            if guard.bad
            else []
        )
        said += [f"{counted(guard.empty, 'step')} had no label to learn from"] if guard.empty else []
        return "; ".join(said) + f"; {self.weights} holds {self.source}"


class Diverged(ValueError):
    """There is nothing to deliver: too many steps in a row made no update, or the weights are not finite any more. The
    last good checkpoint is untouched."""

    def __init__(self, state: TrainingState, checkpoint: Path | None) -> None:
        self.state, self.checkpoint = state, checkpoint
        guard = state.guard
        where = f"steps {guard.first:,} to {guard.first + guard.streak - 1:,}"
        kept = f"the last good checkpoint is {checkpoint}" if checkpoint else "no checkpoint was saved before"
        if not guard.streak:
            text = (
                f"training diverged: after step {state.step:,} the weights hold NaN or infinity; lower the learning rate, "
                "lengthen the warm-up or clip harder"
            )
        elif guard.cause == "empty":
            text = f"no label counted in {guard.streak} steps in a row ({where}): all are −100; look at the data"
        else:
            text = (
                f"training diverged: loss or gradients were NaN or infinite in {guard.streak} steps in a row ({where}; "
                "metrics.jsonl says which data); lower the learning rate, lengthen the warm-up or clip harder"
            )
        super().__init__(f"{text}; {kept}")
