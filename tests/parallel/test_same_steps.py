"""The contract of parallelism: N ranks take the same steps as one, in float64 within 1e-9."""

import pytest
import torch
from same_steps import FAMILIES, alone, take_steps, whole

pytestmark = pytest.mark.xdist_group("ranks")
STAGES = {
    "replicas": {},
    "zero 1": {"shard": 2, "zero": 1},
    "zero 2": {"shard": 2, "zero": 2},
    "zero 3": {"shard": 2, "zero": 3},
    "tensor": {"tensor": 2},
    "ring": {"context": 2},
    "all-to-all": {"context": 2, "context_attention": "all-to-all"},
    "all-gather": {"context": 2, "context_attention": "all-gather"},
}


def check(results, one):
    for steps in results:
        assert steps.counts == one.counts
        assert steps.losses == pytest.approx(one.losses, rel=1e-9)
        assert steps.norms == pytest.approx(one.norms, rel=1e-9)
        for mine, wanted in zip(steps.values, one.values, strict=True):
            assert mine == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    weights = whole(results)
    assert weights.keys() == one.weights.keys()
    for name, tensor in one.weights.items():
        if name.endswith(".k.bias"):  # its gradient is 0 up to rounding, of which some optimizers take the sign alone
            continue
        torch.testing.assert_close(weights[name], tensor, rtol=1e-9, atol=1e-10, msg=name)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("family", FAMILIES)
def test_two_ranks_equal_one(two, family, stage):
    check(two.run(take_steps, family, STAGES[stage]), alone(family))


@pytest.mark.parametrize("stage", STAGES)
def test_accumulation_and_clipping(two, stage):
    settings = ("training.accumulate=3", "training.clip_norm=0.1", "training.clip_value=0.05")
    check(two.run(take_steps, "encoder-decoder", STAGES[stage], settings), alone("encoder-decoder", settings))


@pytest.mark.parametrize("stage", STAGES)
def test_recomputation(two, stage):
    settings = ("training.recompute=blocks",)
    check(two.run(take_steps, "moe", STAGES[stage], settings), alone("moe", settings))


@pytest.mark.parametrize("kind", ["muon", "adafactor", "lion", "sgd", "adagrad"])
def test_optimizers(two, kind):
    settings = (f"training.optimizer={{kind: {kind}, lr: 0.01}}",)
    check(two.run(take_steps, "encoder-decoder", {"shard": 2, "zero": 2}, settings), alone("encoder-decoder", settings))


@pytest.mark.parametrize("kind", ["lion", "sgd", "adagrad"])
def test_elementwise_optimizers_of_divided_parameters(two, kind):
    settings = (f"training.optimizer={{kind: {kind}, lr: 0.01}}",)
    check(two.run(take_steps, "encoder-decoder", {"shard": 2}, settings), alone("encoder-decoder", settings))


@pytest.mark.parametrize("stage", STAGES)
def test_a_rank_without_rows(two, stage):
    settings = ("batching.max_rows=1",)
    check(two.run(take_steps, "encoder-decoder", STAGES[stage], settings), alone("encoder-decoder", settings))


@pytest.mark.slow
@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_hybrid_sharding_on_four_ranks(four, family, zero):
    scale = {"data": 2, "shard": 2, "zero": zero}
    check(four.run(take_steps, family, scale), alone(family))


@pytest.mark.slow
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_four_ranks_equal_one(four, family, zero):
    scale = {"shard": 4, "zero": zero} if zero else {}
    check(four.run(take_steps, family, scale), alone(family))
