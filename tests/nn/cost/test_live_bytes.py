"""Live bytes of a training step, predicted and as PyTorch's allocator reports them: models of four shapes, fp32 and bf16."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from fast_subset import fast
from torch.profiler import ProfilerActivity, profile

from qkv.io.families import preset
from qkv.nn.cost.flops import BatchShape
from qkv.nn.cost.memory import MemorySettings, made_up_batch, predict
from qkv.nn.kernels.products import onednn
from qkv.nn.models.base import ModelSpec
from qkv.nn.models.build import build

SIZES: dict[str, Any] = {"d_model": 128, "n_layers": 4, "n_heads": 4}
TEXT = SIZES | {"vocab_size": 1000}
CASES: dict[str, tuple[dict[str, Any], BatchShape]] = {
    "gpt2": (TEXT, BatchShape(4, 128)),
    "llama": (TEXT | {"d_ff": 384}, BatchShape(4, 128)),
    "mixtral-8x7b": (TEXT | {"d_ff": 256, "n_kv_heads": 2}, BatchShape(4, 64)),
    "bert-base": (TEXT, BatchShape(4, 128)),
    "transformer-base": (TEXT, BatchShape(8, 48, 64)),
    "t5-small": (TEXT, BatchShape(8, 48, 64)),
    "vit-base-16": (SIZES | {"d_ff": 512}, BatchShape(4, 197)),
}


def allocated(spec: ModelSpec, shape: BatchShape, plan: MemorySettings) -> int:
    """Most bytes that are allocated at once in the third step of training with Adam, by the profiler's record."""
    model = build(spec).train()
    model.recompute(plan.recompute)
    batch, optimizer = made_up_batch(spec, shape, plan), torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        for _ in range(plan.accumulate):
            with nullcontext() if plan.dtype is None else torch.autocast("cpu", plan.dtype):
                if batch.labels is not None:
                    loss = model(**batch.inputs, labels=batch.labels).loss
                else:
                    loss = model(**batch.inputs).sum()
            loss.backward()
            del loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    step()
    states = [value for state in optimizer.state.values() for value in state.values()]
    now = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers(), *states))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    events = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert len(events) > 100
    peak = now
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


# Without instructions for it, bf16 takes seconds on a CPU.
FAST = [
    *((name, None) for name in ("gpt2", "transformer-base", "vit-base-16")),
]


@pytest.mark.parametrize("case", fast([(name, dtype) for name in CASES for dtype in (None, torch.bfloat16)], *FAST))
def test_live_bytes_match_the_allocator_within_10_percent(case: tuple[str, torch.dtype | None]) -> None:
    name, dtype = case
    sizes, shape = CASES[name]
    spec, plan = preset(name, **sizes), MemorySettings(dtype=dtype)
    memory = predict(spec, shape, plan)
    assert memory is not None
    assert memory.live == pytest.approx(allocated(spec, shape, plan), rel=0.1)


@pytest.mark.parametrize("changes", [{"recompute": "blocks"}, {"accumulate": 2}], ids=str)
def test_recomputation_and_accumulation_are_predicted_too(changes: dict[str, Any]) -> None:
    sizes, shape = CASES["gpt2"]
    spec, plan = preset("gpt2", **sizes), MemorySettings(**changes)
    memory = predict(spec, shape, plan)
    assert memory is not None
    assert memory.live == pytest.approx(allocated(spec, shape, plan), rel=0.1)


@pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")),
    reason="this PyTorch has no oneDNN",
)
@pytest.mark.parametrize("vocab_size", [1000, 20_000])
def test_what_onednn_copies_is_predicted_too(vocab_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products by oneDNN, on any processor. The large vocabulary's loss takes several chunks of logits, one at a time."""
    monkeypatch.setattr(onednn, "is_faster", lambda: True)
    monkeypatch.setattr(onednn, "LEAST", 1 << 20)
    spec, shape, plan = preset("gpt2", **TEXT | {"vocab_size": vocab_size}), BatchShape(8, 128), MemorySettings()
    memory = predict(spec, shape, plan)
    assert memory is not None
    assert memory.live == pytest.approx(allocated(spec, shape, plan), rel=0.1)
