"""The contract of parallelism on several axes: every pair on four ranks, three on eight, four on sixteen."""

from itertools import combinations

import pytest
from same_steps import FAMILIES, STAGES, alone, compare, take_steps

from qkv.training.parallel.scale import Scale

pytestmark = [pytest.mark.xdist_group("ranks"), pytest.mark.slow]
PIPELINED = ("training.accumulate=4", "model.n_layers=4")
AXES = {
    "data": {"data": 2},
    **{name: scale for name, scale in STAGES.items() if name != "replicas"},
    "expert": {"expert": 2},
    "1f1b": {"pipeline": 2, "pipeline_schedule": "1f1b"},
    "gpipe": {"pipeline": 2, "pipeline_schedule": "gpipe"},
    "interleaved-1f1b": {"pipeline": 2, "pipeline_schedule": "interleaved-1f1b"},
    "zb-h1": {"pipeline": 2, "pipeline_schedule": "zb-h1"},
}
REFUSED = [("zero 3", "zb-h1")]
PAIRS = [
    pair for pair in combinations(AXES, 2) if not AXES[pair[0]].keys() & AXES[pair[1]].keys() and pair not in REFUSED
]
FOURS = {
    "data 4": {"data": 4},
    "zero 1": {"shard": 4, "zero": 1},
    "zero 2": {"shard": 4, "zero": 2},
    "zero 3": {"shard": 4},
    "tensor 4": {"tensor": 4},
    "context 4": {"context": 4},
    "expert 4": {"expert": 4},
    "pipeline 4": {"pipeline": 4},
}
EIGHTS = (
    {"data": 2, "tensor": 2, "pipeline": 2},
    {"shard": 2, "zero": 3, "tensor": 2, "pipeline": 2},
    {"shard": 2, "zero": 3, "tensor": 2, "context": 2},
    {"data": 2, "shard": 2, "zero": 3, "pipeline": 2},
    {"data": 2, "shard": 2, "zero": 1, "context": 2},
    {"expert": 2, "shard": 2, "zero": 3, "tensor": 2},
    {"expert": 2, "context": 2, "pipeline": 2},
    {"data": 2, "shard": 4, "zero": 2},
)
SIXTEENS = (
    {"data": 2, "tensor": 2, "pipeline": 2, "context": 2},
    {"shard": 2, "zero": 3, "tensor": 2, "pipeline": 2, "context": 2},
    {"expert": 2, "shard": 2, "zero": 3, "tensor": 2, "pipeline": 2},
)


def equals_one(pool, family, scale):
    """Compare steps on a mesh with steps of one process, if the family can be divided so."""
    if scale.get("expert", 1) > 1 and family != "moe":
        pytest.skip("there are no experts to divide")
    if scale.get("pipeline", 1) > 1 and family == "contrastive":
        pytest.skip("a pipeline needs one forward pass for each batch")
    settings = ("model.n_heads=8", "model.d_model=32") if scale.get("tensor", 1) > 2 and family == "window" else ()
    settings += PIPELINED if scale.get("pipeline", 1) > 1 else ()
    compare(pool.run(take_steps, family, scale, settings), alone(family, settings))


@pytest.mark.parametrize("pair", PAIRS, ids=", ".join)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_pair_of_axes_equals_one_rank(four, family, pair):
    equals_one(four, family, AXES[pair[0]] | AXES[pair[1]])


@pytest.mark.parametrize("pair", REFUSED, ids=", ".join)
def test_what_is_refused_says_why(pair):
    with pytest.raises(ValueError, match="computes gradients of weights after zero=3 has summed a layer's gradients"):
        Scale.from_dict(AXES[pair[0]] | AXES[pair[1]])


@pytest.mark.parametrize("axis", FOURS)
@pytest.mark.parametrize("family", FAMILIES)
def test_axes_of_four_ranks_equal_one_rank(four, family, axis):
    equals_one(four, family, FOURS[axis])


@pytest.mark.parametrize("mesh", EIGHTS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_three_axes_equal_one_rank(eight, family, mesh):
    equals_one(eight, family, mesh)


@pytest.mark.parametrize("mesh", SIXTEENS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_four_axes_equal_one_rank(sixteen, family, mesh):
    equals_one(sixteen, family, mesh)
