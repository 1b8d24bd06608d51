"""What fits into a memory: the answers fit, one more does not, and every lever is the cost model's own number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

import qkv
from qkv.nn.cost import fit
from qkv.nn.cost.fit import Decoding, largest, read_size
from qkv.nn.cost.flops import BatchShape
from qkv.nn.cost.kv_cache import cache_bytes
from qkv.nn.cost.memory import MemorySettings, TrainingMemory, predict
from qkv.nn.models import stack

TINY: dict[str, Any] = {"n_layers": 2, "d_model": 32, "n_heads": 4, "vocab_size": 64, "max_positions": 64}
MB = 10**6


def tiny(**changes: Any) -> Any:
    return qkv.preset("gpt2", **{**TINY, **changes})


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GB", 24 * 10**9),
        ("22.5 GiB", int(22.5 * 2**30)),
        ("500mb", 5 * 10**8),
        ("1e", 0),
        ("", 0),
        ("0GB", 0),
        ("24", 0),
    ],
)
def test_sizes_with_units_are_read_and_others_refused(text: str, size: int) -> None:
    if size:
        assert read_size(text) == size
    else:
        with pytest.raises(ValueError, match="is not a size of memory; write it as 24GB"):
            read_size(text)


@given(
    st.integers(0, 400), st.integers(0, 50), st.integers(0, 9), st.integers(1, 2000), st.integers(1, 300), st.booleans()
)
def test_the_largest_that_fits_is_found(
    start: int, floor: int, slope: int, limit: int, most: int, convex: bool
) -> None:
    def size(n: int) -> int:
        return start + max(floor, slope * n)

    expected = max((n for n in range(1, most + 1) if size(n) <= limit), default=0)
    assert largest(size, limit, most, convex=convex) == expected


def test_few_sizes_are_computed() -> None:
    tried = []

    def size(n: int) -> int:
        tried.append(n)
        return 1000 + 7 * n

    assert largest(size, 10_000, 10**6, convex=True) == 1285
    assert len(tried) <= 4


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    spec, shape, plan, limit = tiny(), BatchShape(8, 64), MemorySettings(for_gpu=True), 200 * MB
    rows = fit.largest_batch(spec, shape, plan, limit)
    sizes = [predict(spec, replace(shape, rows=n), plan) for n in (rows, rows + 1)]
    assert sizes[0].peak <= limit < sizes[1].peak  # type: ignore[union-attr]
    assert fit.largest_batch(spec, shape, plan, MB) == 0


def test_models_that_fit() -> None:
    spec, shape, plan, limit = tiny(), BatchShape(8, 64), MemorySettings(for_gpu=True), 200 * MB
    deep, wide = fit.deepest(spec, shape, plan, limit), fit.widest(spec, shape, plan, limit)
    assert deep is not None and wide is not None
    assert deep.d_model == 32 and deep.n_layers > 2 and wide.n_layers == 2 and wide.d_model > 32
    for model, larger in (
        (deep, fit.with_layers(spec, deep.n_layers + 1)),
        (wide, fit.with_width(spec, wide.d_model // 8 + 1)),
    ):
        inside, outside = predict(model, shape, plan), predict(larger, shape, plan)
        assert inside.peak <= limit < outside.peak  # type: ignore[union-attr]
    assert fit.longest_rows(spec, shape, plan, limit) == 64  # the model's context


def test_wider_models_keep_their_proportions() -> None:
    spec = qkv.preset("llama", **{**TINY, "n_kv_heads": 2})
    wide: Any = fit.with_width(spec, 6)
    block = wide.decoder.blocks[0]
    assert (wide.d_model, block.attention.n_heads, block.attention.n_kv_heads) == (96, 12, 6)
    assert block.feedforward.d_ff == 3 * spec.decoder.blocks[0].feedforward.d_ff  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="only a model of attention and feed-forward layers"):
        fit.with_width(tiny().replace({"decoder.blocks.0.attention": {"kind": "convolution", "pattern": "causal"}}), 6)
    with pytest.raises(ValueError, match="has no stacks of blocks to deepen"):
        fit.with_layers(qkv.preset("rnnsearch"), 3)


def test_zero_keeps_one_share_of_each_part() -> None:
    memory = TrainingMemory(weights=80, gradients=80, optimizer=160, activations=9, live=329, peak=400)
    assert [fit.sharded_savings(memory, stage, 8) for stage in (1, 2, 3)] == [140, 210, 280]
    assert [fit.sharded_savings(memory, stage, 1) for stage in (1, 2, 3)] == [0, 0, 0]


def test_quantized_weights_are_counted_matrix_by_matrix() -> None:
    spec, norms = tiny(), 2 * 32
    tables = 64 * 32 + 64 * 32
    matrices = 2 * 12 * 32 * 32
    biases = 2 * (4 * 32 + 5 * 32)
    rest = tables + 2 * 2 * norms + norms + biases
    assert spec.n_parameters == matrices + rest
    scales = 2 * (4 * 32 + 4 * 32 + 32)  # rows of at most 128 weights have one each
    assert fit.weights_bytes(spec, Decoding()) == 2 * spec.n_parameters
    assert fit.weights_bytes(spec, Decoding(bits=8)) == 2 * rest + matrices + 2 * scales
    assert fit.weights_bytes(spec, Decoding(bits=4)) == 2 * rest + matrices // 2 + 2 * scales


def test_decoding_is_weights_caches_and_what_reading_prompts_takes() -> None:
    spec, shape = qkv.preset("llama", **TINY), BatchShape(5, 40)
    for decoding in (Decoding(), Decoding(torch.float32), Decoding(cache="int8")):
        row = cache_bytes(spec, 40, decoding.cache, decoding.dtype)
        assert row is not None
        prompt = fit.prompt_bytes(spec, shape, decoding)
        assert prompt > 4 * 64
        counted = fit.decoding_memory(spec, shape, decoding)
        assert counted == spec.n_parameters * decoding.dtype.itemsize + 5 * (row + prompt)
        assert fit.largest_decoding_batch(spec, shape, decoding, counted) == 5
        assert fit.longest_text(spec, shape, decoding, counted) == 40


def allocated(model: Any, ids: torch.Tensor) -> int:
    """The most bytes that PyTorch's allocator had given for reading a prompt."""
    cache = model.start(1, capacity=ids.shape[1])
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record, torch.no_grad():
        model.step(ids, cache)
    now, sizes = 0, []
    for event in sorted(record.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            sizes.append(now)
    return max(sizes)


def test_reading_a_prompt_takes_what_the_allocator_says(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = qkv.preset("llama", **{**TINY, "d_model": 128, "max_positions": 512})
    model, ids = qkv.build(spec).eval(), torch.zeros(1, 300, dtype=torch.long)
    counted = fit.prompt_bytes(spec, BatchShape(1, 300), Decoding(torch.float32))
    assert allocated(model, ids) <= 1.1 * counted  # by kernels for whole sequences if there are any
    monkeypatch.setattr(stack, "fused_encoding", lambda *about: None)
    assert counted == pytest.approx(allocated(model, ids), rel=0.1)
    assert fit.prompt_bytes(spec, BatchShape(1, 300), Decoding()) < counted
    assert fit.prompt_bytes(qkv.preset("transformer-base", **TINY), BatchShape(1, 40, 40), Decoding()) > 0


def test_a_prompt_takes_as_much_whatever_the_number_of_layers() -> None:
    shape, changes = BatchShape(1, 60), {"decoder.blocks.1.attention.pattern": {"kind": "causal"}}
    few, many = (qkv.preset("llama", **{**TINY, "n_layers": n}) for n in (2, 5))
    wanted = fit.prompt_bytes(few, shape, Decoding())
    assert fit.prompt_bytes(many, shape, Decoding()) == wanted
    assert fit._prompt_bytes(many, 60, 0, torch.bfloat16, None) == wanted, "the model with all its layers"
    assert fit.shallow(many.replace(changes)).n_layers == 2
