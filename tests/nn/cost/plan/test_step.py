"""The time of a step: what ZeRO divides, what overlap hides, and the bubble."""

from dataclasses import replace

import pytest

from qkv.nn.cost.accelerators import KNOWN
from qkv.nn.cost.plan.execution import QKV, kernels
from qkv.nn.cost.plan.layout import RankLayout
from qkv.nn.cost.plan.network import network
from qkv.nn.cost.plan.rank_memory import memory
from qkv.nn.cost.plan.step import Machine, step
from qkv.nn.cost.plan.work import ModelWork, work
from qkv.runs.planning.published_models import spec_of

H100 = Machine(KNOWN["h100"], network("nvlink4-ndr"), kernels("h100"), QKV)


@pytest.fixture(scope="module")
def llama() -> ModelWork:
    return work("llama-3-8b", spec_of("llama-3-8b", {"n_layers": 8}), 8192)


def test_zero_divides_and_overlap_hides(llama: ModelWork) -> None:
    stages = [memory(llama, RankLayout(shard=8, zero=zero), QKV) for zero in (1, 2, 3)]
    assert stages[0].states > stages[1].states > stages[2].states
    without = step(llama, RankLayout(shard=8, zero=3), replace(H100, how=replace(QKV, data_overlap=False)))
    assert without.exposed > 5 * step(llama, RankLayout(shard=8, zero=3), H100).exposed


def test_the_bubble_is_narayanans(llama: ModelWork) -> None:
    layout = RankLayout(pipeline=4, microbatches=8)
    found = step(llama, layout, H100)
    one = (found.seconds - found.bubble - found.compute["optimizer"]) / 8
    assert found.bubble == pytest.approx(3 * one, rel=0.05)
    assert step(llama, replace(layout, chunks=2), H100).bubble == pytest.approx(found.bubble / 2)
