"""Batches that can't fit are refused, with what would fit by the same prediction."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from qkv.io.families import preset
from qkv.nn.cost.flops import BatchShape
from qkv.nn.cost.memory import predict
from qkv.nn.layers.lora import LoRA
from qkv.runs.train import memory_check
from qkv.runs.train.memory_check import MemoryCheck, plan_of
from qkv.training.objective import NextToken
from qkv.training.settings import Training
from qkv.training.weight_averaging import ExponentialMovingAverage

CPU = torch.device("cpu")
SPEC = preset("gpt", d_model=64, n_layers=4, n_heads=4, vocab_size=100, max_positions=128, dropout=0.0)
PLAN = plan_of(Training(), SPEC, CPU, NextToken(), packed=False, padded=False)
ROOM = MemoryCheck(SPEC, BatchShape(64, 128), PLAN, tokens=64 * 128)


def peak(room: MemoryCheck) -> int:
    memory = predict(room.spec, room.shape, room.plan)
    assert memory is not None
    return memory.peak


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that the machine has left, to be set by a test."""
    found = [0]
    monkeypatch.setattr(memory_check, "available", lambda device: found[0])
    return found


def test_what_fits_is_let_through(free: list[int]) -> None:
    free[0] = peak(ROOM)
    ROOM.check()


def test_what_does_not_fit_is_refused_with_what_would(free: list[int]) -> None:
    free[0] = peak(ROOM) * 4 // 5
    with pytest.raises(
        ValueError, match=r"batches of 8,192 tokens would take about 0\.\d GiB, .* has 0\.\d GiB free"
    ) as told:
        ROOM.check()
    found = re.search(r"batching\.tokens=(\d+) with training\.accumulate=(\d+)", str(told.value))
    assert found is not None
    tokens, times = map(int, found.groups())
    assert times > 1 and 8192 <= tokens * times < 8192 + times
    plan = replace(PLAN, accumulate=times)
    MemoryCheck(SPEC, BatchShape(tokens // 128, 128), plan, tokens).check()
    assert peak(replace(ROOM, shape=BatchShape(64 // (times - 1), 128), plan=plan)) > free[0], "fewer cuts would not do"
    assert "\n" not in str(told.value)


def test_recomputation_is_offered_where_it_helps(free: list[int]) -> None:
    less = peak(replace(ROOM, plan=replace(PLAN, recompute="blocks")))
    assert less < peak(ROOM)
    free[0] = less + 1
    with pytest.raises(ValueError, match=r"or training\.recompute=blocks \(0\.\d GiB\)"):
        ROOM.check()


def test_where_nothing_fits_a_smaller_model_is_the_way(free: list[int]) -> None:
    free[0] = 1 << 20
    with pytest.raises(ValueError, match="not even a row of 128 tokens fits: take a smaller model or shorter rows"):
        ROOM.check()


def test_far_from_the_limit_nothing_is_run(free: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    free[0] = 1 << 40
    monkeypatch.setattr(memory_check, "predict", lambda *_: pytest.fail("a quick look is enough"))
    ROOM.check()


def test_where_the_system_says_nothing_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_check, "available", lambda device: None)
    ROOM.check()


def test_the_plan_is_what_the_settings_say() -> None:
    training = Training(precision="bf16", recompute="blocks", accumulate=3, average=ExponentialMovingAverage())
    plan = plan_of(training, SPEC, CPU, None, packed=True, padded=True)
    assert (plan.dtype, plan.recompute, plan.accumulate, plan.copies) == (torch.bfloat16, "blocks", 3, 1)
    assert plan.packed and plan.padded and plan.loss is None
    assert plan_of(Training(), SPEC, torch.device("mps")).device == CPU


def test_an_adapter_needs_little_beside_the_weights() -> None:
    plan = plan_of(Training(), SPEC, CPU, NextToken(), adapter=LoRA(rank=2))
    memory, whole = predict(SPEC, BatchShape(2, 16), plan), predict(SPEC, BatchShape(2, 16), PLAN)
    assert memory is not None and whole is not None
    assert memory.optimizer < whole.optimizer / 5 and memory.gradients < whole.gradients / 5
    assert memory.weights == whole.weights
