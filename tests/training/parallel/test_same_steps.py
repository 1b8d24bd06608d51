"""The contract of parallelism: N ranks take the same steps as one, in float64 within 1e-9."""

import pytest
import torch
from fast_subset import diagonals, fast
from same_steps import DROPPING, FAMILIES, STAGES, alone, compare, take_steps

from qkv.training.compiling import missing_compiler

pytestmark = pytest.mark.xdist_group("ranks")
SHARDED = {name: STAGES[name] for name in ("replicas", "zero 1", "zero 2", "zero 3")}


@pytest.mark.parametrize(("family", "stage"), diagonals(FAMILIES, STAGES, every=9))
def test_two_ranks_equal_one(two, family, stage):
    compare(two.run(take_steps, family, STAGES[stage]), alone(family))


@pytest.mark.parametrize(("family", "stage"), diagonals(DROPPING, SHARDED, every=5))
def test_ranks_with_other_rows_drop_what_one_rank_drops(two, family, stage):
    settings = ("model.dropout=0.2",)
    one = alone(family, settings)
    compare(two.run(take_steps, family, SHARDED[stage], settings), one)
    assert abs(one.losses[0] - alone(family).losses[0]) > 1e-3, "dropout left no trace"


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["replicas", "zero 1", "zero 3", "tensor", "ring", "all-to-all"])
def test_compiled_on_two_ranks(two, stage):
    """By torch.compile, whose graphs break where ranks communicate."""
    if missing_compiler(torch.device("cpu")):
        pytest.skip("there is no C++ compiler")
    compare(two.run(take_steps, "decoder", STAGES[stage], ("training.compile=true",)), alone("decoder"))


@pytest.mark.parametrize(
    ("family", "schedule"),
    diagonals(
        [name for name in FAMILIES if name != "contrastive"], ["1f1b", "gpipe", "interleaved-1f1b", "zb-h1"], every=10
    ),
)
def test_pipelines_equal_one_rank(two, family, schedule):
    settings = ("training.accumulate=4", "model.n_layers=4")
    scale = {"pipeline": 2, "pipeline_schedule": schedule}
    compare(two.run(take_steps, family, scale, settings), alone(family, settings))


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
    "linear attention, not causal": ("'*.blocks.*.attention'={kind: linear-attention, n_heads: 4, n_kv_heads: 2}",),
    "linear attention": ("'*.blocks.*.attention'={kind: linear-attention, n_heads: 4, pattern: causal}",),
    "SwiGLU, norm of queries and keys": (
        "'*.blocks.*.feedforward.gated'=true",
        "'*.blocks.*.attention.qk_norm'=rmsnorm",
    ),
    "parallel, layers shared": ("'*.blocks.*.placement'=parallel",),
}


@pytest.mark.parametrize(
    ("mechanism", "scale"), diagonals(MECHANISMS, ["tensor", "ring", "all-to-all", "all-gather"], every=7)
)
def test_divided_mechanisms_equal_one_rank(two, mechanism, scale):
    replaced = ", ".join(change.replace("=", ": ", 1) for change in MECHANISMS[mechanism])
    settings = ("model.replace={" + replaced + "}",)
    compare(two.run(take_steps, "decoder", STAGES[scale], settings), alone("decoder", settings))


@pytest.mark.parametrize("stage", fast(STAGES, "ring"))
def test_accumulation_and_clipping_equal_one_rank(two, stage):
    settings = ("training.accumulate=3", "training.clip_norm=0.1", "training.clip_value=0.05")
    compare(two.run(take_steps, "encoder-decoder", STAGES[stage], settings), alone("encoder-decoder", settings))


@pytest.mark.parametrize("stage", fast(STAGES, "all-to-all"))
def test_recomputation_equals_one_rank(two, stage):
    settings = ("training.recompute=blocks",)
    compare(two.run(take_steps, "moe", STAGES[stage], settings), alone("moe", settings))


@pytest.mark.parametrize("kind", fast(["muon", "adafactor", "lion", "sgd", "adagrad"], "muon"))
def test_optimizers_equal_one_rank(two, kind):
    settings = (f"training.optimizer={{kind: {kind}, lr: 0.01}}",)
    compare(
        two.run(take_steps, "encoder-decoder", {"shard": 2, "zero": 2}, settings), alone("encoder-decoder", settings)
    )


@pytest.mark.parametrize("kind", fast(["lion", "sgd", "adagrad"], "lion"))
def test_elementwise_optimizers_of_divided_parameters(two, kind):
    settings = (f"training.optimizer={{kind: {kind}, lr: 0.01}}",)
    compare(two.run(take_steps, "encoder-decoder", {"shard": 2}, settings), alone("encoder-decoder", settings))


@pytest.mark.parametrize("stage", fast(STAGES, "zero 3"))
def test_a_rank_without_rows(two, stage):
    settings = ("batching.max_rows=1",)
    compare(two.run(take_steps, "encoder-decoder", STAGES[stage], settings), alone("encoder-decoder", settings))


@pytest.mark.parametrize("schedule", fast(["1f1b", "interleaved-1f1b"], "1f1b"))
@pytest.mark.parametrize("kind", fast(["adamw", "muon"], "adamw"))
def test_learning_rates_by_layer_and_name_in_a_pipeline(two, kind, schedule):
    """Patterns that match parameters of one stage only, and depths that are counted over all stages."""
    groups = "layer_decay: 0.5, rates: {'*.blocks.0.*': 0.5, '*.blocks.3.*': 2.0}, freeze: ['*.blocks.2.feedforward.*']"
    settings = (
        f"training.optimizer={{kind: {kind}, lr: 0.01, {groups}}}",
        "training.accumulate=4",
        "model.n_layers=4",
    )
    scale = {"pipeline": 2, "pipeline_schedule": schedule}
    compare(two.run(take_steps, "decoder", scale, settings), alone("decoder", settings))
