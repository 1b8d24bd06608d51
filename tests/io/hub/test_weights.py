"""What is told of the numbers in files of weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import safetensors.torch
import torch
from run_untrained import of, words

import qkv
from qkv.io.directories.build import build
from qkv.io.families import preset
from qkv.runs.export import gguf

SMALL = {"d_model": 16, "n_layers": 2, "n_heads": 2, "vocab_size": 20, "max_positions": 16}
LAST = "decoder.blocks.1.feedforward.down.weight"


def said_of(path: Path, dtype: str | None = None) -> list[str]:
    return _said(lambda: qkv.load(path, dtype=dtype, device="cpu"))


def _said(load: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        load()
    return [str(one.message) for one in told if "infinite" in str(one.message)]


@pytest.mark.parametrize("to", ["hub", "qkv"])
@pytest.mark.parametrize("number", [float("nan"), float("-inf"), 1e5, 1.0])
def test_nan_and_infinite_weights_are_told_once_with_the_names_of_their_tensors(
    number: float, to: Literal["hub", "qkv"], tmp_path: Path
) -> None:
    model = build(preset("gpt2", **SMALL), seed=2)
    tensor = dict(model.named_parameters())[LAST]
    with torch.no_grad():
        tensor.view(-1)[-1] = number
        model.get_parameter("decoder.norm.weight")[0] = number
    path = model.save(tmp_path / "model", to)
    found = said_of(path)
    assert len(found) == (abs(number) != 1 and abs(number) != 1e5)
    if found:
        assert (
            f"NaN or infinite numbers in '{LAST}', 'decoder.norm.weight'" in found[0]
            and "may have diverged" in found[0]
        )
    half = said_of(path, "float16")
    assert len(half) == (number != 1.0)
    assert ("numbers above float16's largest, 65504" in "".join(half)) == (number == 1e5)
    assert bool(said_of(path, "bfloat16")) == bool(found)


def _quantized(path: Path, weights: str, to: Literal["hub", "qkv"]) -> Path:
    run = of("llama", words(), "continue", d_model=64, d_ff=64, n_heads=2, n_kv_heads=2, max_positions=16)
    groups = {"group_size": 32} if weights == "int4" else {}
    return run.quantize(weights, **groups).save(path, to)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("weights", "to"),
    [
        ("int8", "qkv"),
        ("int4", "hub"),
        *(pytest.param(w, "hub", marks=pytest.mark.slow) for w in ("fp8", "nf4", "mxfp4")),
    ],
)
def test_scales_and_codes_of_quantized_weights_that_are_not_finite_are_told(
    weights: str, to: Literal["hub", "qkv"], tmp_path: Path
) -> None:
    path = _quantized(tmp_path / "run", weights, to)
    assert said_of(path) == []
    file = path / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    name = next(name for name in tensors if (".0." in name and "scale" in name) or name.endswith("absmax"))
    tensors[name].view(-1)[-1] = float("nan") if tensors[name].is_floating_point() else 255
    safetensors.torch.save_file(tensors, file, {"format": "pt"})
    (said,) = said_of(path)
    assert "NaN or infinite numbers in 'decoder.blocks.0" in said and "the file is damaged" in said


@pytest.mark.parametrize("form", ["f32", pytest.param("q8_0", marks=pytest.mark.slow)])
def test_numbers_of_a_gguf_file_that_are_not_finite_are_told(form: str, tmp_path: Path) -> None:
    model = build(preset("llama", **{**SMALL, "d_model": 64, "d_ff": 64, "n_kv_heads": 2}), seed=2)
    with torch.no_grad():
        weight = model.get_parameter("decoder.blocks.0.feedforward.down.weight")
        weight[3], weight[3, 40] = 0.0, 12700.0
    gguf.save(model, tmp_path / "model.gguf", form)
    number = (
        np.array(12700.0, "<f4").tobytes() if form == "f32" else np.array(100.0, "<f2").tobytes() + bytes(8) + b"\x7f"
    )
    infinite = np.array(np.inf, "<f4" if form == "f32" else "<f2").tobytes()
    content = (tmp_path / "model.gguf").read_bytes()
    assert content.count(number) == 1
    (tmp_path / "model.gguf").write_bytes(content.replace(number, infinite + number[len(infinite) :]))
    (said,) = said_of(tmp_path / "model.gguf")
    assert "NaN or infinite numbers in 'decoder.blocks.0.feedforward.down.weight'" in said


def test_numbers_of_an_adapter_that_are_not_finite_are_told(tmp_path: Path) -> None:
    base = build(preset("gpt2", **SMALL), seed=2)
    adapted = qkv.adapt(build(preset("gpt2", **SMALL), seed=2), qkv.LoRA(rank=2))
    path = qkv.save_adapter(adapted, tmp_path / "adapter")
    assert _said(lambda: qkv.load_adapter(build(preset("gpt2", **SMALL), seed=2), path)) == []
    with torch.no_grad():
        next(parameter for name, parameter in adapted.named_parameters() if "lora_b" in name)[0, 1] = float("nan")
    qkv.save_adapter(adapted, path, overwrite=True)
    (said,) = _said(lambda: qkv.load_adapter(base, path))
    assert "adapter_model.safetensors: NaN or infinite numbers in 'base_model.model." in said and "lora_B" in said
    run = adapted.save(tmp_path / "run", "qkv")  # merged into the weights
    assert len(said_of(run)) == 1
