"""What a training says at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.training.checkpoints.state import SkippedSteps, TrainingState
from qkv.training.result import Diverged, TrainingResult


def test_a_result_says_why_it_ended_and_what_it_skipped() -> None:
    state = TrainingState(step=1200, elapsed=61.4, guard=SkippedSteps(bad=1, empty=2))
    made = TrainingResult("patience", state, {}, None, Path("w.safetensors"), "the best weights")
    assert str(made) == (
        "stopped early, as no evaluation beat the best one any more, after 1,200 steps and 61 s; 1 step with a NaN or "
        "infinite loss or gradient made no update; 2 steps had no label to learn from; w.safetensors holds the best weights"
    )
    assert not made.interrupted and TrainingResult("interrupted", state, {}, None, Path("w"), "").interrupted


@pytest.mark.parametrize(
    ("guard", "message"),
    [
        (SkippedSteps(bad=3, streak=3, first=10, cause="bad"), r"in 3 steps in a row \(steps 10 to 12"),
        (
            SkippedSteps(empty=2, streak=2, first=5, cause="empty"),
            r"no label counted in 2 steps in a row \(steps 5 to 6",
        ),
        (SkippedSteps(), "after step 40 the weights hold NaN or infinity"),
    ],
)
def test_a_divergence_names_its_steps_and_the_last_checkpoint(guard: SkippedSteps, message: str) -> None:
    state = TrainingState(step=40, guard=guard)
    with pytest.raises(Diverged, match=f"{message}.*no checkpoint was saved before"):
        raise Diverged(state, None)
    assert "the last good checkpoint is step-9" in str(Diverged(state, Path("step-9")))
