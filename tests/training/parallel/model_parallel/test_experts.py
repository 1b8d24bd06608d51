"""Experts divided over ranks: the steps of one rank in float64."""

import pytest
from fast_subset import fast
from same_steps import MOE, STAGES, alone, compare, take_steps

pytestmark = pytest.mark.xdist_group("ranks")


def test_experts_on_two_ranks(two):
    compare(two.run(take_steps, "moe", {"expert": 2}), alone("moe"))


@pytest.mark.parametrize("stage", [*fast(STAGES), "expert"])
def test_a_shared_layer_beside_experts(two, stage):
    mixture = MOE.rstrip("}") + ", shared: {kind: feedforward, d_ff: 24}}"
    settings = ("model.replace={'*.blocks.*.feedforward': " + mixture + "}",)
    scale = {"expert": 2} if stage == "expert" else STAGES[stage]
    compare(two.run(take_steps, "moe", scale, settings), alone("moe", settings))
