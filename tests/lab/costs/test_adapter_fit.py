"""An adapter on a model of a name: what a few layers say of all, and which memory it fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import qkv
from qkv.cli import main
from qkv.lab.costs.adapter_fit import WEIGHTS, adapter_fit
from qkv.nn.cost import fit
from qkv.nn.cost.fit import largest_batch, memory_by_layers, training_memory
from qkv.nn.cost.flops import BatchShape
from qkv.nn.cost.memory import count, predict
from qkv.nn.layers.lora import LoRA
from qkv.nn.quantization import product
from qkv.runs.train.memory_check import plan_of
from qkv.training.settings import Training

SMALL: dict[str, Any] = {"d_model": 64, "n_layers": 4, "n_heads": 4, "d_ff": 128, "vocab_size": 300}
MB = 10**6


def spec_of(name: str, **sizes: Any) -> Any:
    return qkv.preset(name, **{**SMALL, **sizes})


@pytest.mark.parametrize(
    ("spec", "recompute", "weights"),
    [
        (spec_of("qwen2-7b", n_kv_heads=2), "none", None),
        (spec_of("qwen2-7b", n_kv_heads=2), "blocks", "nf4"),
        pytest.param(
            spec_of("gemma-2-2b", n_kv_heads=2, d_head=16, n_layers=6), "blocks", "nf4", marks=pytest.mark.slow
        ),
    ],
)
def test_a_few_layers_say_what_all_take(spec: Any, recompute: str, weights: str | None) -> None:
    training = Training(precision="bf16", recompute=recompute)
    plan = replace(plan_of(training, spec, torch.device("cpu"), adapter=LoRA(), weights=weights), for_gpu=True)
    counted = training_memory(spec, BatchShape(2, 32), plan)
    told = memory_by_layers(spec, BatchShape(2, 32), plan)
    for name in ("weights", "gradients", "optimizer", "peak"):
        assert getattr(told, name) == pytest.approx(getattr(counted, name), rel=0.001), name
    assert told.activations == pytest.approx(counted.activations, rel=0.05)


def test_the_first_and_the_last_piece_of_quantized_weights_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "PIECE", 1 << 10)
    spec = spec_of("gpt2", n_layers=1)
    plan = plan_of(Training(), spec, torch.device("cpu"), adapter=LoRA(), weights="nf4")
    few = predict(spec, BatchShape(2, 32), plan)
    monkeypatch.setattr(product, "counting", lambda _: None)
    assert few == predict(spec, BatchShape(2, 32), plan)


def test_quantized_experts_are_counted_without_the_values_that_route_to_them() -> None:
    spec = spec_of("mixtral-8x7b", n_kv_heads=2, n_layers=1)
    plan = plan_of(Training(), spec, torch.device("cpu"), adapter=LoRA(), weights="nf4")
    assert predict(spec, BatchShape(1, 16), plan) is not None


EXACT = [
    ("gpt2", {}, "lora", "none"),
    pytest.param("qwen2-7b", {"n_kv_heads": 2}, "qlora", "blocks", marks=pytest.mark.slow),
    *(
        pytest.param(name, sizes, adapter, recompute, marks=pytest.mark.slow)
        for name, sizes in [
            ("gpt2", {"vocab_size": 9000}),
            ("bert-base", {}),
            ("t5-small", {}),
            ("transformer-base", {}),
            ("mixtral-8x7b", {"n_kv_heads": 2}),
            ("gemma-2-2b", {"n_kv_heads": 2, "d_head": 16, "n_layers": 6}),
        ]
        for adapter in ("lora", "qlora")
        for recompute in ("none", "blocks")
    ),
]


@pytest.mark.parametrize(("name", "sizes", "adapter", "recompute"), EXACT)
def test_the_largest_batch_matches_counting_every_batch(
    name: str, sizes: dict[str, Any], adapter: str, recompute: str
) -> None:
    spec, weights = spec_of(name, **sizes), WEIGHTS[adapter]
    training = Training(precision="bf16", recompute=recompute)
    encodes = spec.is_encoder_decoder
    plan = plan_of(training, spec, torch.device("cpu"), padded=encodes, adapter=LoRA(), weights=weights)
    plan, source = replace(plan, for_gpu=True), 48 * encodes
    one, at, above = (memory_by_layers(spec, BatchShape(n, 48, source), plan).peak for n in (1, 9, 10))
    for limit, counted in ((at, 9), (at - 1, 8), ((at + above) // 2, 9), (one - 1, 0)):
        found = largest_batch(spec, BatchShape(2, 48, source), plan, limit, by_layers=True)
        assert found == counted, limit


@pytest.mark.slow
def test_two_batches_of_each_policy_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the sizes of a 7B, of which two models of few layers are counted."""
    counted = []

    def counting(*about: Any) -> Any:
        counted.append(about)
        return count(*about)

    monkeypatch.setattr(fit, "count", counting)
    spec = spec_of("qwen2-7b", n_kv_heads=2, vocab_size=5000)
    fits = adapter_fit("qwen2-7b", spec, 500 * MB, "qlora", rows=8, length=512)
    assert all(one.batch > 1 for one in fits.settings) and len(counted) == 8


@pytest.mark.slow
def test_a_7b_on_24_gb(capsys: pytest.CaptureFixture[str]) -> None:
    """Frozen in fp32 its weights take 4 bytes each; in nf4 the matrices of its blocks take half a byte and a scale."""
    assert main(["cost", "fit", "qwen2-7b", "--adapter", "qlora", "--memory", "24GB"]) == 0
    assert "over frozen nf4 weights fits" in capsys.readouterr().out
    assert main(["cost", "fit", "qwen2-7b", "--adapter", "lora", "--memory", "24GB"]) == 2
    error = capsys.readouterr().err
    assert "28.4 GiB of it the frozen weights in fp32; --adapter qlora, which keeps them in nf4, does" in error


@pytest.mark.slow
def test_what_does_not_fit_is_told_with_what_does(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["n_layers=4", "d_model=512", "n_heads=4", "vocab_size=500"]
    assert main(["cost", "fit", "gpt2", *sizes, "--adapter", "lora", "--memory", "200MB"]) == 2
    assert "--adapter qlora, which keeps them in nf4, does not either" in capsys.readouterr().err
    assert main(["cost", "fit", "gpt2", *sizes, "--adapter", "lora", "--memory", "300MB"]) == 0
    out = capsys.readouterr().out
    assert "…" not in out and "rows at most" in out  # nothing is cut
    assert "training.precision=bf16 training.recompute=blocks" in out and "'adapter={kind: lora, rank: 8}'" in out
    assert main(["cost", "fit", "gpt2", "--adapter", "lora", "--for", "decoding"]) == 2
    assert "leave out --adapter or --for decoding" in capsys.readouterr().err
