"""Stages of a pipeline: layers divided by their cost, and the steps of one rank."""

import pytest
from fast_subset import diagonals
from same_steps import DROPPING, LAYERS, alone, compare, take_steps

import qkv
from qkv.training.parallel.model_parallel.stages import TOKENS, costs, stage_with

pytestmark = pytest.mark.xdist_group("ranks")


@pytest.mark.parametrize(
    ("family", "schedule"),
    diagonals([name for name in DROPPING if name != "contrastive"], ["1f1b", "interleaved-1f1b", "zb-h1"], every=5),
)
def test_stages_drop_what_one_rank_drops(two, family, schedule):
    settings = ("model.dropout=0.2", *LAYERS)
    scale = {"pipeline": 2, "pipeline_schedule": schedule}
    compare(two.run(take_steps, family, scale, settings), alone(family, settings))


def test_the_head_counts_to_the_last_layer() -> None:
    spec = qkv.preset("gpt2", n_layers=3, d_model=16, n_heads=2, vocab_size=60, max_positions=32)
    first, second, last = costs(spec)
    assert first == second and last - first == spec.head.cost_for(spec, TOKENS).flops  # type: ignore[union-attr]
    pairs = costs(qkv.preset("transformer", n_layers=2, d_model=16, n_heads=2, d_ff=32, vocab_size=60))
    assert len(pairs) == 4 and pairs[2] > pairs[0]  # a decoder's layer reads the source too


def test_a_layer_is_on_the_stage_between_whose_edges_it_is() -> None:
    assert [stage_with([0, 2, 3, 6], layer) for layer in range(6)] == [0, 0, 1, 2, 2, 2]
