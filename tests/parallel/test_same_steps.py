"""The contract of parallelism: N ranks take the same steps as one, in float64 within 1e-9."""

import pytest
import torch
from fast_subset import diagonals, fast
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


@pytest.mark.parametrize(("family", "stage"), diagonals(FAMILIES, STAGES))
def test_two_ranks_equal_one(two, family, stage):
    check(two.run(take_steps, family, STAGES[stage]), alone(family))


@pytest.mark.parametrize(
    ("family", "schedule"), diagonals([name for name in FAMILIES if name != "contrastive"], ["1f1b", "gpipe"], every=2)
)
def test_pipelines(two, family, schedule):
    settings = ("training.accumulate=3",)
    scale = {"pipeline": 2, "pipeline_schedule": schedule}
    check(two.run(take_steps, family, scale, settings), alone(family, settings))


def test_experts_on_two_ranks(two):
    check(two.run(take_steps, "moe", {"expert": 2}), alone("moe"))


MECHANISMS = {
    "rotary, window, GQA": (
        "decoder.position=rotary",
        "'*.blocks.*.attention.n_kv_heads'=2",
        "'*.blocks.*.attention.pattern'={kind: window, size: 7, ahead: 1}",
    ),
    "ALiBi, soft-capped": ("decoder.position=alibi", "'*.blocks.*.attention.softcap'=5.0"),
    "T5's bias": ("decoder.position=t5",),
    "learned sinks": ("'*.blocks.*.attention.sink'=learned",),
    "sigmoid weights": ("'*.blocks.*.attention.weighting'=sigmoid",),
    "linear attention": ("'*.blocks.*.attention'={kind: linear-attention, n_heads: 4, pattern: causal}",),
    "SwiGLU, norm of queries and keys": (
        "'*.blocks.*.feedforward.gated'=true",
        "'*.blocks.*.attention.qk_norm'=rmsnorm",
    ),
    "parallel, layers shared": ("'*.blocks.*.placement'=parallel",),
}


@pytest.mark.parametrize(
    ("mechanism", "scale"), diagonals(MECHANISMS, ["tensor", "ring", "all-to-all", "all-gather"], every=4)
)
def test_mechanisms(two, mechanism, scale):
    replaced = ", ".join(change.replace("=", ": ", 1) for change in MECHANISMS[mechanism])
    settings = ("model.replace={" + replaced + "}",)
    check(two.run(take_steps, "decoder", STAGES[scale], settings), alone("decoder", settings))


@pytest.mark.parametrize("stage", fast(STAGES, "zero 3", "tensor", "ring"))
def test_accumulation_and_clipping(two, stage):
    settings = ("training.accumulate=3", "training.clip_norm=0.1", "training.clip_value=0.05")
    check(two.run(take_steps, "encoder-decoder", STAGES[stage], settings), alone("encoder-decoder", settings))


@pytest.mark.parametrize("stage", fast(STAGES, "zero 2", "all-to-all"))
def test_recomputation(two, stage):
    settings = ("training.recompute=blocks",)
    check(two.run(take_steps, "moe", STAGES[stage], settings), alone("moe", settings))


@pytest.mark.parametrize("kind", fast(["muon", "adafactor", "lion", "sgd", "adagrad"], "muon", "adafactor"))
def test_optimizers(two, kind):
    settings = (f"training.optimizer={{kind: {kind}, lr: 0.01}}",)
    check(two.run(take_steps, "encoder-decoder", {"shard": 2, "zero": 2}, settings), alone("encoder-decoder", settings))


@pytest.mark.parametrize("kind", fast(["lion", "sgd", "adagrad"], "lion"))
def test_elementwise_optimizers_of_divided_parameters(two, kind):
    settings = (f"training.optimizer={{kind: {kind}, lr: 0.01}}",)
    check(two.run(take_steps, "encoder-decoder", {"shard": 2}, settings), alone("encoder-decoder", settings))


@pytest.mark.parametrize("stage", fast(STAGES, "replicas", "zero 3", "all-gather"))
def test_a_rank_without_rows(two, stage):
    settings = ("batching.max_rows=1",)
    check(two.run(take_steps, "encoder-decoder", STAGES[stage], settings), alone("encoder-decoder", settings))


@pytest.mark.slow
@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_hybrid_sharding_on_four_ranks(four, family, zero):
    scale = {"data": 2, "shard": 2, "zero": zero}
    check(four.run(take_steps, family, scale), alone(family))


PAIRS = {
    "tensor 4": {"tensor": 4},
    "context 4": {"context": 4},
    "tensor, context": {"tensor": 2, "context": 2},
    "tensor, data": {"tensor": 2, "data": 2},
    "tensor, zero 1": {"tensor": 2, "shard": 2, "zero": 1},
    "tensor, zero 2": {"tensor": 2, "shard": 2, "zero": 2},
    "tensor, zero 3": {"tensor": 2, "shard": 2},
    "context, data": {"context": 2, "data": 2},
    "context, zero 1": {"context": 2, "shard": 2, "zero": 1},
    "context, zero 3": {"context": 2, "shard": 2},
}
PIPELINE_PAIRS = {
    "pipeline 4": {"pipeline": 4},
    "pipeline, data": {"pipeline": 2, "data": 2},
    "pipeline, zero 1": {"pipeline": 2, "shard": 2, "zero": 1},
    "pipeline, zero 2": {"pipeline": 2, "shard": 2, "zero": 2},
    "pipeline, tensor": {"pipeline": 2, "tensor": 2},
    "pipeline, context": {"pipeline": 2, "context": 2},
    "pipeline, expert": {"pipeline": 2, "expert": 2},
}
EXPERT_PAIRS = {
    "expert 4": {"expert": 4},
    "expert, data": {"expert": 2, "data": 2},
    "expert, zero 1": {"expert": 2, "shard": 2, "zero": 1},
    "expert, zero 3": {"expert": 2, "shard": 2},
    "expert, tensor": {"expert": 2, "tensor": 2},
    "expert, context": {"expert": 2, "context": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("family", FAMILIES)
def test_pairs(four, family, pair):
    check(four.run(take_steps, family, PAIRS[pair]), alone(family))


@pytest.mark.slow
@pytest.mark.parametrize("pair", PIPELINE_PAIRS)
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "contrastive"])
def test_pairs_with_pipelines(four, family, pair):
    settings = ("training.accumulate=3", "model.n_layers=4")
    if "expert" in pair and family != "moe":
        pytest.skip("there are no experts to divide")
    check(four.run(take_steps, family, PIPELINE_PAIRS[pair], settings), alone(family, settings))


@pytest.mark.slow
@pytest.mark.parametrize("pair", EXPERT_PAIRS)
def test_pairs_with_experts(four, pair):
    check(four.run(take_steps, "moe", EXPERT_PAIRS[pair]), alone("moe"))


@pytest.mark.slow
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_four_ranks_equal_one(four, family, zero):
    scale = {"shard": 4, "zero": zero} if zero else {}
    check(four.run(take_steps, family, scale), alone(family))
