"""Bug 17 of those that others shipped: clipping by a shard's own norm; gradients of a pipeline that accumulates."""

from __future__ import annotations

import pytest
from rank_pool import RankPool
from same_steps import alone, compare, take_steps

pytestmark = pytest.mark.xdist_group("ranks")
CLIPPED = ("training.clip_norm=0.05",)


@pytest.mark.parametrize(
    ("scale", "settings"),
    [
        pytest.param({"shard": 2, "zero": 2}, CLIPPED, marks=pytest.mark.slow),
        pytest.param({"shard": 2, "zero": 3}, CLIPPED, marks=pytest.mark.slow),
        ({"tensor": 2}, CLIPPED),
        ({"pipeline": 2}, (*CLIPPED, "training.accumulate=3")),
        pytest.param({"pipeline": 2}, ("training.accumulate=3",), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_bug_17_the_norm_is_global_and_accumulated_gradients_are_weighed_once(
    two: RankPool, scale: dict[str, int], settings: tuple[str, ...]
) -> None:
    """The norm that is clipped is that of all ranks' gradients, and three microbatches weigh as much as on one rank."""
    results, one = two.run(take_steps, "decoder", scale, settings), alone("decoder", settings)
    compare(results, one)
    assert min(one.norms) > 0.05  # clipped, if at all
