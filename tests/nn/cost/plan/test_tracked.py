"""A plan for one device: its memory against that of a step without contents, and its time against the roofline."""

import pytest
import torch

from qkv.nn.cost.accelerators import KNOWN
from qkv.nn.cost.flops import BatchShape
from qkv.nn.cost.memory import MemorySettings as Settings
from qkv.nn.cost.memory import predict
from qkv.nn.cost.plan.execution import QKV, QKV_FP32, kernels
from qkv.nn.cost.plan.layout import RankLayout
from qkv.nn.cost.plan.network import network
from qkv.nn.cost.plan.rank_memory import memory
from qkv.nn.cost.plan.step import Machine, step
from qkv.nn.cost.plan.tracked import tracked
from qkv.nn.cost.plan.work import work
from qkv.nn.cost.roofline import roofline
from qkv.runs.planning.published_models import spec_of

SMALL = {"d_model": 256, "n_heads": 4, "n_layers": 4, "vocab_size": 4000}
MODELS = {
    "gpt2": SMALL | {"d_ff": 1024},
    "llama-3-8b": SMALL | {"n_kv_heads": 2, "d_ff": 700},
    "t5-small": {"n_layers": 2},
}
CASES = [
    pytest.param(name, narrow, marks=() if (name, narrow) == ("gpt2", True) else pytest.mark.slow)
    for name in MODELS
    for narrow in (True, False)
]


@pytest.mark.parametrize(("name", "narrow"), CASES)
def test_one_device_needs_what_a_step_keeps(name: str, narrow: bool) -> None:
    spec = spec_of(name, MODELS[name])
    source = 128 if spec.is_encoder_decoder else 0
    how = QKV if narrow else QKV_FP32
    model = tracked(work(name, spec, 128, source), spec, source, how)
    for again in ("none", "blocks"):
        counted = predict(
            spec, BatchShape(8, 128, source), Settings(dtype=torch.bfloat16 if narrow else None, recompute=again)
        )
        assert counted is not None
        planned = memory(model, RankLayout(rows=8, recompute=again), how)
        assert (planned.weights, planned.optimizer) == pytest.approx((counted.weights, counted.optimizer), rel=0.02)
        assert planned.total == pytest.approx(counted.live, rel=0.2)


@pytest.mark.parametrize("name", ["gpt2", "llama-3-8b"])
def test_a_step_takes_longer_than_the_roofline_and_has_its_flops(name: str) -> None:
    spec = spec_of(name, {})
    machine = Machine(KNOWN["h100"], network(None, "h100"), kernels("h100"), QKV)
    planned = step(work(name, spec, 1024), RankLayout(rows=4), machine)
    bound = roofline(spec, BatchShape(4, 1024), KNOWN["h100"], "bf16")
    assert planned.flops == pytest.approx(bound.model_flops)
    assert bound.seconds < planned.seconds < 5 * bound.seconds
