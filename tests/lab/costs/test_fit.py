"""`qkv cost fit`: levers of training and decoding, and what is said if nothing fits."""

from __future__ import annotations

from typing import Any

import pytest

import qkv
from qkv.lab.costs.fit import decoding_fit, of_preset, training_fit
from qkv.nn.cost.flops import BatchShape
from qkv.training.settings import Training

TINY: dict[str, Any] = {"n_layers": 2, "d_model": 32, "n_heads": 8, "vocab_size": 64, "max_positions": 64}
MB = 10**6


@pytest.mark.slow
def test_levers_of_training_save_what_they_should() -> None:
    spec, shape = qkv.preset("gpt2", **TINY), BatchShape(32, 64)
    fits = training_fit(spec, shape, Training(precision="fp32"), 250 * MB, 4, True)
    levers = {lever.name: lever for lever in fits.levers}
    base = fits.levers[0]
    assert base.batch and fits.rows == (32 if base.batch >= 32 else 1)
    for name in (
        "precision=bf16",
        "recompute=blocks",
        "precision=bf16 recompute=blocks",
        "accumulate=32, 1 row at a time",
    ):
        assert levers[name].bytes < base.bytes, name
    assert levers["recompute=blocks"].batch > base.batch  # type: ignore[operator]
    zero = [levers[f"ZeRO stage {stage}, 4 GPUs, rows of each"] for stage in (1, 2, 3)]
    assert base.bytes > zero[0].bytes > zero[1].bytes > zero[2].bytes
    assert {lever.basis for lever in zero} == {"formula"}
    assert {"n_kv_heads=4", "n_kv_heads=1", "a window of 16 tokens", "LoRA of rank 8"} <= set(levers)
    assert fits.tokens <= 64


@pytest.mark.slow
def test_levers_of_decoding_save_what_they_should() -> None:
    spec = qkv.preset("llama", **{**TINY, "d_ff": 64, "max_positions": 4096})
    fits = decoding_fit(spec, BatchShape(8, 512), 100 * MB)
    levers = {lever.name: lever for lever in fits.levers}
    base = fits.levers[0]
    assert levers["fp32"].bytes > base.bytes > levers["--set cache=int8"].bytes > levers["--set cache=int4"].bytes
    assert base.bytes > levers["weights in int8"].bytes > levers["weights in int4"].bytes
    assert base.bytes > levers["n_kv_heads=4"].bytes > levers["n_kv_heads=1"].bytes
    assert levers["--set cache=int4"].batch > base.batch  # type: ignore[operator]


@pytest.mark.slow
def test_what_would_fit_is_said() -> None:
    spec = qkv.preset("llama", **{**TINY, "d_model": 256, "max_positions": 4096})
    needed = decoding_fit(spec, BatchShape(1, 64), 10**9).levers[0].bytes
    with pytest.raises(ValueError, match=r"does not fit into .* GB; it would with .*weights in int4"):
        decoding_fit(spec, BatchShape(1, 64), needed - 10_000)
    with pytest.raises(ValueError, match=r"training one row of 64 tokens .* does not fit into .*; no single change"):
        training_fit(spec, BatchShape(1, 64), Training(), MB, 8, True)
    fits = of_preset("llama", spec, needed, rows=1, length=64)
    assert fits.training is None and fits.decoding is not None and "training one row" in fits.misfits[0]
    with pytest.raises(ValueError, match="rows of 9,999 tokens are longer than llama's context of 4,096"):
        of_preset("llama", spec, 10**9, rows=1, length=9999)


@pytest.mark.slow
def test_encoders_are_trained_only() -> None:
    spec = qkv.preset("bert-base", **TINY)
    fits = of_preset("bert", spec, 200 * MB, rows=2, length=32)
    assert fits.decoding is None and fits.training is not None and fits.to_dict()["training"]["levers"]
    with pytest.raises(ValueError, match="only a Transformer with a decoder has a cache"):
        of_preset("bert", spec, 10**9, rows=2, length=32, purpose="decoding")
