"""Buffers after building, casting, saving and loading: on the model's device, in their own dtype, with their own values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import qkv
from qkv.core.spec import Cost
from qkv.nn.attention.scores import Score
from qkv.nn.layers.norm import Norm
from qkv.nn.models.heads.vision import Standardize
from qkv.nn.models.unfilled import without_parameters

pytestmark = pytest.mark.filterwarnings("ignore:.* is saved under the model type")

SIZES = {"vocab_size": 20, "d_model": 16, "n_layers": 2, "n_heads": 2, "max_positions": 16}
ATTENTION, IDS = "decoder.blocks.*.attention", torch.tensor([[5, 3, 8, 2, 1]])
SCORES = [kind for kind, cls in Score.kinds.items() if cls.__module__.startswith("qkv.") and kind != "exact-match"]


class Whitened(nn.Module):
    """A module from outside: a table that follows from its sizes, which no file holds, and a count, which one does."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.linspace(0.5, 1.5, width), persistent=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.table


class Whiten(Norm, kind="test-whiten"):
    def module(self, d: int) -> nn.Module:
        return Whitened(d)

    def cost(self, d: int, tokens: int = 0) -> Cost:
        return Cost()


CHANGES: dict[str, dict[str, Any]] = {
    "sink": {f"{ATTENTION}.sink": "zero"},
    **{f"score {kind}": {f"{ATTENTION}.score": kind} for kind in SCORES},
    "sigma": {f"{ATTENTION}.score": {"kind": "gaussian", "sigma": 1.3}},
    "performer": {ATTENTION: {"kind": "performer", "n_heads": 2, "features": {"kind": "favor", "n_features": 6}}},
    "router": {"decoder.blocks.*.feedforward": {"kind": "moe", "n_experts": 4, "d_ff": 8, "bias_rate": 0.001}},
    "outside": {"decoder.norm": "test-whiten"},
}


def made(change: str, dtype: torch.dtype = torch.float32) -> Any:
    """A small model; what is updated in training is away from where it starts."""
    built = qkv.build(qkv.preset("gpt2", **SIZES).replace(CHANGES[change]), dtype=dtype).eval()
    for name, buffer in built.named_buffers():
        if name.endswith("router.bias"):
            buffer.copy_(torch.linspace(-0.01, 0.013, len(buffer)))
    return built


@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_loaded_buffers_match_the_saved_model(change: str, tmp_path: Path) -> None:
    built = made(change)
    built.save(tmp_path / "model")
    again = qkv.load(tmp_path / "model", device="cpu").model
    before = dict(built.named_buffers())
    assert {name: b.dtype for name, b in again.named_buffers()} == {name: b.dtype for name, b in before.items()}
    assert all(torch.equal(b, before[name]) for name, b in again.named_buffers())
    assert torch.equal(again(IDS), built(IDS))
    wide = qkv.load(tmp_path / "model", device="cpu", dtype="float64").model
    torch.testing.assert_close(wide(IDS), built.double()(IDS))


@pytest.mark.parametrize("change", ["sigma", "performer", "router"])
@torch.no_grad()
def test_no_way_into_half_precision_rounds_what_a_module_keeps(change: str, tmp_path: Path) -> None:
    built = made(change)
    exact = {name: b.clone() for name, b in built.named_buffers()}
    assert exact
    built.save(tmp_path / "model")
    loaded = qkv.load(tmp_path / "model", device="cpu", dtype="bfloat16").model
    loaded.save(tmp_path / "half")
    again = qkv.load(tmp_path / "half", device="cpu").model
    for model in (loaded, again, built.bfloat16(), built.float().half(), built.to("cpu", torch.bfloat16)):
        assert model.dtype in (torch.bfloat16, torch.float16)
        assert all(torch.equal(b, exact[name]) for name, b in model.named_buffers()), "a buffer was rounded"
    assert torch.isfinite(again(IDS)).all()


def test_running_means_of_a_probe_are_not_rounded() -> None:
    probe = Standardize(4)
    assert {buffer.dtype for buffer in probe.bfloat16().buffers()} == {torch.float32}
    x = 3 + torch.randn(64, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    for _ in range(200):  # a step of 0.1 · 2⁻⁸ and less would be lost
        assert probe(x).dtype == torch.bfloat16
    torch.testing.assert_close(probe.mean, x.float().mean(0), rtol=1e-4, atol=1e-4)
    assert {buffer.dtype for buffer in probe.double().buffers()} == {torch.float64}


def test_a_router_continues_balancing_in_bf16() -> None:
    """A step of 0.001 from 1 is lost in bf16, whose next number is 1.0078."""
    model = made("router", torch.bfloat16)
    layer = model.decoder.blocks[0].feedforward
    layer.router.bias.fill_(1.0)
    layer.load = torch.tensor([1.0, 2.0, 3.0, 4.0])
    layer.rebalance()
    torch.testing.assert_close(layer.router.bias, torch.tensor([1.001, 1.001, 0.999, 0.999]))


def test_parameters_are_on_meta_in_one_thread_alone() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with without_parameters(), ThreadPoolExecutor(1) as pool:
        assert nn.Linear(2, 2).weight.is_meta
        assert not pool.submit(nn.Linear, 2, 2).result().weight.is_meta
    assert not nn.Linear(2, 2).weight.is_meta
