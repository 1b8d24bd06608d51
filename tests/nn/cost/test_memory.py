"""The predicted memory against what autograd says that it saves, and against rules that must hold."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qkv.core.layout import Layout
from qkv.io.families import preset
from qkv.nn.cost.flops import BatchShape
from qkv.nn.cost.memory import STATE_BYTES, MemorySettings, TrainingMemory, ceiling, predict
from qkv.nn.layers.feedforward import FeedForward, FeedForwardNet
from qkv.nn.models.build import build
from qkv.nn.models.transformer import Transformer

SMALL: dict[str, Any] = {"vocab_size": 300, "d_model": 64, "n_layers": 2, "n_heads": 4}
BF16 = torch.bfloat16


def gpt(**changes: Any) -> Transformer:
    return preset("gpt", **{**SMALL, "max_positions": 128, "dropout": 0.0, **changes})


def known(spec: Transformer, shape: BatchShape, **plan: Any) -> TrainingMemory:
    memory = predict(spec, shape, MemorySettings(**plan))
    assert memory is not None
    return memory


def saved(spec: Transformer, shape: BatchShape, dtype: torch.dtype | None) -> int:
    """Bytes that a real forward pass keeps for its backward pass, weights apart, as autograd hands them over."""
    model = build(spec).train()
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids = torch.zeros(shape.rows, shape.length, dtype=torch.int64)
    autocast = torch.autocast("cpu", dtype, enabled=dtype is not None)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), autocast:
        loss = model(ids, layout=Layout.full(shape.length), labels=ids).loss
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    assert loss.requires_grad
    return sum(t.untyped_storage().nbytes() for at, t in kept.items() if at not in own)


@pytest.mark.parametrize("dtype", [None, BF16])
@pytest.mark.parametrize("sizes", [{}, {"d_model": 128, "n_layers": 3}, {"dropout": 0.1}], ids=str)
def test_activations_are_what_autograd_saves(sizes: dict[str, Any], dtype: torch.dtype | None) -> None:
    spec, shape = gpt(**sizes), BatchShape(4, 64)
    assert known(spec, shape, dtype=dtype).activations == pytest.approx(saved(spec, shape, dtype), rel=0.1)


def test_weights_gradients_and_adams_moments() -> None:
    spec = gpt()
    memory = known(spec, BatchShape(2, 16))
    n = spec.n_parameters
    assert memory.gradients == pytest.approx(4 * n, rel=0.01)
    assert memory.optimizer == STATE_BYTES * n
    assert memory.weights == pytest.approx(4 * n, rel=0.01)
    averaged = known(spec, BatchShape(2, 16), copies=1)
    assert averaged.weights == 2 * memory.weights and averaged.peak == memory.peak + memory.weights


def test_an_optimizer_counts_by_what_it_keeps() -> None:
    def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    spec = gpt()
    assert known(spec, BatchShape(2, 16), optimizer=sgd).optimizer == 4 * spec.n_parameters


def test_frozen_weights_have_neither_gradients_nor_state() -> None:
    def frozen(model: torch.nn.Module) -> torch.optim.Optimizer:
        for name, p in model.named_parameters():
            p.requires_grad_(name.startswith("decoder.norm"))
        return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])

    memory = known(gpt(), BatchShape(2, 16), optimizer=frozen)
    assert memory.gradients < memory.weights / 100 and memory.optimizer < memory.weights / 50


def test_the_settings_have_the_effect_that_they_are_for() -> None:
    spec, shape = gpt(n_layers=6), BatchShape(8, 128)
    plain = known(spec, shape)
    assert known(spec, shape, dtype=BF16).activations < 0.9 * plain.activations
    assert known(spec, shape, recompute="blocks").activations < 0.3 * plain.activations
    assert known(spec, shape, recompute="alternate").activations < 0.7 * plain.activations
    assert known(spec, shape, accumulate=4).peak > plain.peak
    assert known(spec, shape, accumulate=4) == known(spec, shape, accumulate=2)
    whole = spec.replace({"head.fused": False})
    wide = {"vocab_size": 20_000}
    assert known(whole.replace(wide), shape).activations > known(spec.replace(wide), shape).activations + 50e6


FAMILIES = st.sampled_from(["gpt", "llama", "transformer"])


@settings(max_examples=5)
@given(FAMILIES, st.integers(1, 6), st.integers(4, 80), st.booleans(), st.booleans())
def test_more_rows_take_more_and_the_ceiling_is_above(
    name: str, rows: int, length: int, padded: bool, half: bool
) -> None:
    spec = preset(name, **{**SMALL, "n_layers": 1}, **({} if name == "transformer" else {"max_positions": 128}))
    source = length if spec.is_encoder_decoder else 0
    plan = MemorySettings(dtype=BF16 if half else None, padded=padded)
    less, more = (predict(spec, BatchShape(n, length, source), plan) for n in (rows, 2 * rows))
    assert less is not None and more is not None
    assert less.peak < more.peak and less.activations < more.activations
    assert more.peak <= ceiling(spec, BatchShape(2 * rows, length, source), plan)


def test_packed_rows_are_predicted_too() -> None:
    assert known(gpt(), BatchShape(4, 64), packed=True).peak > 0


class Peeking(FeedForward, kind="test-peeking"):
    """A layer that decides by what it sees."""

    def module(self, d_model: int) -> torch.nn.Module:
        return PeekingNet(self, d_model)


class PeekingNet(FeedForwardNet):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if bool((x > 0).any()) else x


def test_what_depends_on_values_is_not_predicted() -> None:
    try:
        spec = gpt().replace({"decoder.blocks.*.feedforward": Peeking(d_ff=8)})
        assert predict(spec, BatchShape(2, 8)) is None
    finally:
        del FeedForward.kinds["test-peeking"]
