"""The experts of a mixture are quantized, each by its own tokens, and saved in every format with the same outputs."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from mixtures import PRESETS, batch_of, mixture

import qkv
from qkv.nn.layers.quantized import quantized
from qkv.nn.models.quantized.moments import moments
from qkv.nn.models.quantized.quantize import quantize
from qkv.nn.quantization.methods.rtn import rtn
from qkv.nn.quantization.scheme import Scheme
from qkv.runs.export.gguf import save
from qkv.runs.inference.quantization.quantize import rounded_message
from qkv.runs.inference.run import Run

UP = "decoder.blocks.1.feedforward.up"


@pytest.mark.parametrize(
    ("name", "weights"), [("mixtral-8x7b", "int4"), ("qwen1.5-moe-a2.7b", "fp8"), ("qwen1.5-moe-a2.7b", "int8")]
)
@torch.no_grad()
def test_experts_stay_quantized_in_files(name: str, weights: str, tmp_path: Path) -> None:
    model = qkv.build(qkv.preset(name, **PRESETS[name]), seed=1).eval()
    small = Run(model, None, task="continue").quantize(weights, group_size=32)  # type: ignore[arg-type]
    matrix = quantized(small.model)[UP]
    original = model.get_parameter(f"{UP}.weight")
    assert matrix.dense().shape == original.shape
    assert 0 < float((matrix.dense() - original).norm() / original.norm()) < (0.02 if weights == "int8" else 0.2)
    ids = torch.randint(96, (2, 20), generator=torch.Generator().manual_seed(1))
    wanted = small.model(ids)
    torch.testing.assert_close(small.dequantize().model(ids), wanted, rtol=1e-4, atol=1e-5)
    for to in ("hub", "qkv"):
        again = qkv.load(small.save(tmp_path / to, to), "cpu").model  # type: ignore[arg-type]
        assert quantized(again).keys() == quantized(small.model).keys()
        torch.testing.assert_close(again(ids), wanted, rtol=1e-5, atol=1e-5)
    if weights != "fp8":
        again = qkv.load(save(small.model, tmp_path / "m.gguf"), "cpu").model
        assert torch.equal(quantized(again)[UP].codes, matrix.codes)
    rounded = qkv.load(Run(model, None, task="continue").save(tmp_path / "dense", "hub"), "cpu", weights=weights)
    assert quantized(rounded.model)[UP].dense_shape == original.shape


GROUPED = ("gate", "up", "down")


@torch.no_grad()
@pytest.mark.parametrize("method", ["gptq", "awq"])
@pytest.mark.parametrize("name", ["mixtral", "shared"])
def test_calibrated_experts_are_nearer_than_rounded_ones(method: str, name: str) -> None:
    """Errors of outputs over each expert's own tokens, as `errors` says and by comparing the whole model's."""
    changes: dict[str, object] = {}
    if name == "shared":
        shared = {"kind": "feedforward", "d_ff": 32, "activation": "silu", "gated": True, "bias": False}
        changes = {"decoder.blocks.*.feedforward.shared": shared, "decoder.blocks.*.feedforward.shared_gate": True}
    built = mixture()
    if changes:
        built = qkv.build(built.spec.replace(changes), seed=1).eval()
    batch, scheme = batch_of(12), Scheme(weights="int4", group_size=32)
    exact = built(**batch.inputs)
    found, off = {}, {}
    for which in ("rtn", method):
        model = copy.deepcopy(built)
        found[which] = quantize(model, scheme, which, batches=[batch])  # type: ignore[arg-type]
        off[which] = float((model(**batch.inputs) - exact).norm() / exact.norm())
    experts = [path for path in found["rtn"].errors if path.rsplit(".", 1)[-1] in GROUPED and "shared" not in path]
    assert len(experts) == 6 and not found[method].rounded
    assert off[method] < 0.9 * off["rtn"]
    for path in experts:
        assert found[method].errors[path] < found["rtn"].errors[path]


@torch.no_grad()
@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_experts_with_few_tokens_are_rounded_and_named(method: str) -> None:
    model, scheme = mixture(), Scheme(weights="int4", group_size=32)
    names = [f"decoder.blocks.0.feedforward.{name}" for name in GROUPED]
    router = model.decoder.blocks[0].feedforward.router.weight
    router[3] = router[2] + 0.01 * router[3]  # beside its twin it is the first or the second choice
    router[1] = 0  # and this one is rarely chosen
    batch = batch_of(2, 20)
    counts = moments(model, {name: model.get_submodule(name) for name in names}, [batch], lambda m, b: m(**b.inputs))
    before = {name: model.get_parameter(f"{name}.weight").clone() for name in names}
    result = quantize(model, scheme, method, batches=[batch])  # type: ignore[arg-type]
    for name in names:
        fewest_allowed = before[name].shape[-1] * (2 if method == "gptq" else 1)
        few = {e: n for e in range(4) if (n := counts[f"{name}.{e}"].count) < fewest_allowed}
        assert few and result.rounded[name] == few
        if method == "gptq":
            e = min(few)
            assert torch.equal(quantized(model)[name].dense()[e], rtn(before[name][e], scheme.format, 32).dense())
    said = rounded_message(result.rounded)
    fewest = min(n for counts in result.rounded.values() for n in counts.values())
    assert f"{sum(map(len, result.rounded.values()))} matrices of experts were rounded" in said
    assert f"(the fewest were {fewest}, to expert" in said


def test_a_run_warns_of_rounded_experts(trained_lm: Path) -> None:
    lm = qkv.load(trained_lm, "cpu")
    sizes = {**PRESETS["mixtral-8x7b"], "vocab_size": lm.model.vocab_size}
    model = qkv.build(qkv.preset("mixtral-8x7b", **sizes), seed=1)  # type: ignore[call-overload]
    run = Run(model, lm.tokenizer, task="continue")
    with pytest.warns(
        UserWarning, match=r"matrices of experts were rounded to nearest, since .* to expert \d of decoder"
    ):
        made = run.quantize("int4", group_size=32, method="gptq", calibrate=["def read(path):"])
    assert quantized(made.model)
