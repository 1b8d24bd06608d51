"""Bug 17 of those that others shipped: clipping by a shard's own norm; gradients of a pipeline that accumulates."""

from __future__ import annotations

import pytest
import torch
from rank_pool import RankPool
from same_steps import alone, take_steps, whole

pytestmark = pytest.mark.xdist_group("ranks")
CLIPPED = ("training.clip_norm=0.05",)


@pytest.mark.parametrize(
    ("scale", "settings"),
    [
        ({"shard": 2, "zero": 2}, CLIPPED),
        ({"shard": 2, "zero": 3}, CLIPPED),
        ({"tensor": 2}, CLIPPED),
        ({"pipeline": 2}, (*CLIPPED, "training.accumulate=3")),
        ({"pipeline": 2}, ("training.accumulate=3",)),
    ],
    ids=str,
)
def test_bug_17_the_norm_is_global_and_accumulated_gradients_are_weighed_once(
    two: RankPool, scale: dict[str, int], settings: tuple[str, ...]
) -> None:
    """The norm that is clipped is that of all ranks' gradients, and three microbatches weigh as much as on one rank."""
    results, one = two.run(take_steps, "decoder", scale, settings), alone("decoder", settings)
    for steps in results:
        assert steps.norms == pytest.approx(one.norms, rel=1e-9)
        assert min(steps.norms) > 0.05  # clipped, where it is
    weights = whole(results)
    for name, tensor in one.weights.items():
        if not name.endswith(".k.bias"):  # its gradient is 0 up to rounding
            torch.testing.assert_close(weights[name], tensor, rtol=1e-9, atol=1e-10, msg=name)
