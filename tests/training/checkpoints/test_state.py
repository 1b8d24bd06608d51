import json
import math

import pytest

from qkv.training.checkpoints.state import SkippedSteps, TrainingState
from qkv.training.early_stopping import BestEvaluation


def test_a_state_survives_json_nan_and_all():
    state = TrainingState(step=3, tokens=9, elapsed=0.1 + 0.2, position={"epoch": 1, "word": "NaN"}, evaluated=2)
    state.metrics = {"loss": math.inf}
    state.guard.refuse(3, "bad")
    read = TrainingState.from_dict(json.loads(json.dumps(state.to_dict(), allow_nan=False)))
    assert math.isnan(read.best.value)
    read.best.value = state.best.value = 0.0
    assert read == state


@pytest.mark.parametrize(("mode", "sign"), [("min", 1.0), ("max", -1.0)])
def test_the_best_evaluation(mode, sign):
    best = BestEvaluation()
    offers = [math.nan, 5.0, 4.0, 3.95, 6.0, 1.0]
    taken = [best.offer(i, sign * v, {"m": v}, mode, min_delta=0.1) for i, v in enumerate(offers, start=1)]
    assert taken == [False, True, True, False, False, True]
    assert (best.step, best.metrics, best.stale) == (6, {"m": 1.0}, 0)


def test_a_streak_ends_with_an_update():
    guard = SkippedSteps()
    for step in (4, 5):
        guard.refuse(step, "bad")
    guard.refuse(6, "empty")
    assert (guard.streak, guard.first, guard.bad, guard.empty, guard.cause) == (3, 4, 2, 1, "empty")
    guard.updated()
    guard.refuse(9, "bad")
    assert (guard.streak, guard.first, guard.bad) == (1, 9, 3)


def test_the_later_of_equals_is_kept_and_counts_as_no_progress():
    best = BestEvaluation()
    assert best.offer(1, 0.5, {"m": 0.5}, "max", 0.0)
    assert best.offer(2, 0.5, {"m": 0.5}, "max", 0.0)
    assert (best.step, best.stale) == (2, 1)
