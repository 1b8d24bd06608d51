"""Objectives that compare all pairs of a step: several ranks take the same steps as one, also over accumulated batches."""

import pytest
from same_steps import TOWERS, alone, compare, take_steps

pytestmark = [pytest.mark.xdist_group("ranks"), pytest.mark.slow]

SCALES = {"replicas": {}, "zero 2": {"shard": 2, "zero": 2}, "zero 3": {"shard": 2, "zero": 3}}


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", [*TOWERS, "contrastive"])
def test_pairs_of_two_ranks_are_compared_as_on_one(two, kind, scale, accumulate):
    settings = (f"training.accumulate={accumulate}",)
    compare(two.run(take_steps, kind, SCALES[scale], settings), alone(kind, settings))


@pytest.mark.parametrize("kind", TOWERS)
def test_a_rank_without_pairs_changes_nothing(two, kind):
    settings = ("batching.max_rows=1", "training.accumulate=3")
    compare(two.run(take_steps, kind, {}, settings), alone(kind, settings))


@pytest.mark.parametrize("axis", ["tensor", "context"])
@pytest.mark.parametrize("kind", TOWERS)
def test_towers_divided_over_ranks_train_as_on_one(two, kind, axis):
    compare(two.run(take_steps, kind, {axis: 2}, ()), alone(kind, ()))


def test_towers_are_not_divided_into_the_stages_of_a_pipeline(two):
    with pytest.raises(AssertionError, match=r"this model is a DualEncoderModel; use"):
        two.run(take_steps, "clip", {"pipeline": 2})
