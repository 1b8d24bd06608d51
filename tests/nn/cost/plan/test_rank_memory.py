"""What a rank holds when it takes no step, and what lies beyond the published runs."""

from dataclasses import replace

import pytest

from qkv.nn.cost.accelerators import KNOWN
from qkv.nn.cost.plan.execution import QKV, kernels
from qkv.nn.cost.plan.layout import RankLayout, check
from qkv.nn.cost.plan.network import network
from qkv.nn.cost.plan.published import extrapolated
from qkv.nn.cost.plan.rules import TrainedBy
from qkv.nn.cost.plan.search import plan, search
from qkv.nn.cost.plan.step import Machine
from qkv.nn.cost.plan.work import ModelWork, work
from qkv.runs.planning.published_models import spec_of
from qkv.runs.planning.sentences import not_fitting

H100 = Machine(KNOWN["h100"], network("nvlink4-ndr"), kernels("h100"), QKV)


@pytest.fixture(scope="module")
def llama() -> ModelWork:
    return work("llama-3-8b", spec_of("llama-3-8b", {}), 8192)


@pytest.fixture(scope="module")
def mixture() -> ModelWork:
    return work("mixtral", spec_of("mixtral-8x7b", {"n_layers": 2}), 4096)


def test_ranks_that_divide_the_model_gather_it_for_an_evaluation(llama: ModelWork) -> None:
    whole = plan(llama, RankLayout(data=8, rows=1, recompute="blocks"), H100)
    parts = plan(llama, RankLayout(shard=8, zero=3, rows=1, recompute="blocks"), H100)
    held = parts.memory
    assert held.weights == pytest.approx(4 * llama.parameters / 8)
    assert whole.moments["delivery"] == pytest.approx(1.05 * 12 * llama.parameters + QKV.reserve)
    assert parts.moments["start"] == pytest.approx(1.05 * (held.weights + held.optimizer) + QKV.reserve)
    begun = plan(llama, parts.layout, replace(H100, how=replace(QKV, begins_whole=True))).moments["start"]
    assert begun == pytest.approx(1.05 * (held.weights + 4 * llama.parameters) + QKV.reserve)
    gathered = 1.05 * (held.weights + held.optimizer + 6 * llama.parameters) + QKV.reserve
    assert parts.moments["delivery"] == pytest.approx(gathered)
    assert parts.moments["resume"] < parts.moments["delivery"] < parts.moments["evaluation"]
    assert parts.fits(H100) and not parts.fails(H100)
    small = replace(H100, device=replace(H100.device, memory=60e9))
    assert parts.fits(small) and parts.fails(small) == "evaluation" and not parts.in_parts
    assert "an evaluation gathers all parameters on every rank, for which each needs 6" in not_fitting(parts, small)


def test_an_evaluation_of_zero_3_gathers_one_block_at_a_time_where_more_does_not_fit(llama: ModelWork) -> None:
    small = replace(H100, device=replace(H100.device, memory=60e9))
    layout = RankLayout(shard=8, zero=3, rows=1, recompute="blocks")
    found = plan(llama, layout, small)
    assert found.in_parts and not found.fails(small)
    block = max(layer.whole + layer.divided + layer.experts for layer in llama.kinds)
    rest = llama.embedding + llama.head + llama.other
    held = found.memory.weights + found.memory.optimizer
    assert found.moments["delivery"] == pytest.approx(1.05 * (held + 6 * rest + 2 * 2 * block) + QKV.reserve)
    assert found.moments["evaluation"] > 1.05 * (held + 6 * (rest + 2 * block)) + QKV.reserve
    adapted = replace(small, how=replace(QKV, in_parts=False))  # whose adapter is merged into whole weights
    assert plan(llama, layout, adapted).fails(adapted) == "evaluation"
    divided = plan(llama, RankLayout(shard=4, tensor=2, zero=3, rows=1, recompute="blocks"), small)
    assert divided.fails(small) and "take ZeRO 3 without tensor" in not_fitting(divided, small)


def test_every_second_block_computed_again_is_between_none_and_all(llama: ModelWork) -> None:
    none, half, every = (
        plan(llama, RankLayout(shard=8, zero=3, rows=1, recompute=kind), H100)
        for kind in ("none", "alternate", "blocks")
    )
    assert none.step.seconds < half.step.seconds < every.step.seconds
    more = [one.step.compute["products"] - none.step.compute["products"] for one in (half, every)]
    assert more[0] == pytest.approx(more[1] / 2)
    assert none.memory.activations > half.memory.activations > every.memory.activations
    tight = replace(H100, device=replace(H100.device, memory=half.memory.needed))
    assert "alternate" in {one.layout.recompute for one in search(llama, tight, 8, 8)}


def test_the_fullest_expert_rank_sets_time_and_memory(mixture: ModelWork) -> None:
    layout = RankLayout(expert=8, rows=1)
    even, uneven = (plan(mixture, layout, replace(H100, how=replace(QKV, imbalance=x))) for x in (1.0, 1.5))
    sent = {one.kind: one.seconds for one in uneven.step.communication}["expert"]
    assert sent == pytest.approx(
        1.5 * {one.kind: one.seconds for one in even.step.communication}["expert"], rel=0.06
    )  # and latency
    assert uneven.step.compute["products"] > 1.2 * even.step.compute["products"]
    assert uneven.memory.activations > 1.1 * even.memory.activations
    alone = [plan(mixture, RankLayout(rows=1), replace(H100, how=replace(QKV, imbalance=x))) for x in (1.0, 1.5)]
    assert alone[0].step.seconds == alone[1].step.seconds


def test_an_optimizer_of_whole_matrices_gets_no_plan_that_divides_them(llama: ModelWork) -> None:
    muon = replace(llama, trained_by=TrainedBy("muon", False))
    with pytest.raises(ValueError, match="the optimizer 'muon' needs whole parameters, and zero=3 divides them"):
        check(RankLayout(shard=8, zero=3), muon)
    zeros = [{one.layout.zero for one in search(model, H100, 8, 8, recompute=("blocks",))} for model in (muon, llama)]
    assert 3 not in zeros[0] and 3 in zeros[1]


def test_what_no_published_run_had_is_named(llama: ModelWork, mixture: ModelWork) -> None:
    usual = RankLayout(shard=8, zero=3)
    assert extrapolated(llama, usual, H100) == []
    long = replace(llama, length=1 << 20, tokens=1 << 20)
    other = Machine(KNOWN["4090"], network(None, "4090"), kernels("4090"), replace(QKV, width=4))
    assert extrapolated(long, usual, other) == [
        "the kernels of 4090", "products in fp32", "rows of 1,048,576 tokens (at most 65,536)"
    ]  # fmt: skip
    assert extrapolated(mixture, replace(usual, zero=2, recompute="alternate"), H100) == [
        "mixtures of experts", "zero=2", "recompute=alternate"
    ]  # fmt: skip
    assert extrapolated(llama, RankLayout(context=3), H100) == ["context=3"]
    assert extrapolated(llama, RankLayout(pipeline=2, schedule="zb-h1"), H100) == ["the schedule zb-h1"]
