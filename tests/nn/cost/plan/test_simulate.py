"""Step time in weak and strong scaling."""

import pytest

from qkv.nn.cost.accelerators import KNOWN
from qkv.nn.cost.plan.execution import QKV, kernels
from qkv.nn.cost.plan.network import network
from qkv.nn.cost.plan.simulate import simulate, sizes
from qkv.nn.cost.plan.step import Machine
from qkv.nn.cost.plan.work import ModelWork, work
from qkv.runs.planning.published_models import spec_of

H100 = Machine(KNOWN["h100"], network("nvlink4-ndr"), kernels("h100"), QKV)


@pytest.fixture(scope="module")
def gpt2() -> ModelWork:
    return work("gpt2", spec_of("gpt2", {}), 1024)


def test_simulation_of_weak_and_strong_scaling(gpt2: ModelWork) -> None:
    points = simulate(gpt2, H100, sizes(8, 64), 32)
    assert [(point.kind, point.ranks, point.batch) for point in points[:4]] == [
        ("weak", 8, 32), ("weak", 16, 64), ("weak", 32, 128), ("weak", 64, 256)
    ]  # fmt: skip
    assert {point.batch for point in points[4:]} == {128}
    strong = [point.plan.step.seconds for point in points[4:] if point.plan]
    assert strong == sorted(strong, reverse=True)
