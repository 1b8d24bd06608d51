"""Formulas beside the numbers of `qkv cost`: evaluated, they give the numbers."""

from __future__ import annotations

import re

import pytest
from fast_subset import thinned

import qkv
from qkv.cli import main
from qkv.io import families
from qkv.nn.cost.flops import BatchShape, parts, tokens_of
from qkv.nn.cost.formulas import formulas, legend, values
from qkv.nn.cost.images import image_tokens
from qkv.nn.models.transformer import Transformer

BY_NAME = {name: spec for name in families.PRESETS if isinstance(spec := qkv.preset(name), Transformer)}


def value(formula: str, **symbols: float) -> float:
    """Evaluate a formula such as `12 · (8d² + 4·S·d)`."""
    text = re.sub(r"([\d.]+)d²", r"\1*d**2", formula).replace("d²", "d**2").replace("·", "*")
    return float(eval(text, {"__builtins__": {}}, symbols))


@pytest.mark.parametrize("name", thinned(BY_NAME))
@pytest.mark.parametrize(("length", "source"), [(128, 128), (96, 32)])
def test_formulas_give_the_numbers_of_every_preset(name: str, length: int, source: int) -> None:
    spec = BY_NAME[name]
    images = image_tokens(spec)
    shape = BatchShape(2, length, images or source) if spec.is_encoder_decoder else BatchShape(2, images or length)
    known, symbols, seen = formulas(spec), values(spec, shape), 0
    for part in parts(spec, shape):
        own = known.get(part.name)
        if own is None:
            continue
        if own.flops:
            per_token = part.flops / tokens_of(part.name, spec, shape)
            elementwise = 8 * spec.d_model if part.name == "head" else 0  # which count beside 33 symbols of proteins
            counted = value(own.flops, **symbols[part.name])
            assert per_token == pytest.approx(counted, rel=0.005, abs=elementwise), part.name
            seen += 1
        if own.parameters:
            biases = spec.vocab_size + 4 * spec.d_model if part.name == "head" else 0
            counted = value(own.parameters, **symbols[part.name])
            assert part.parameters == pytest.approx(counted, rel=0.01, abs=biases), part.name
            seen += 1
    assert seen >= 2


def test_cross_attention_reads_a_source_of_another_length() -> None:
    """Queries and outputs of each token of the target, keys and values of each of the source."""
    spec = qkv.preset("transformer-base")
    assert formulas(spec)["decoder cross-attention"].flops == "6 · (4d² + 4d²·r + 4·N·d)"
    assert "N = 32: tokens of the source" in legend(spec, BatchShape(8, 96, 32))
    assert "S = 32 or 48.5: keys that a token sees on average" in legend(spec, BatchShape(8, 96, 32))
    assert values(spec, BatchShape(8, 96, 32))["decoder cross-attention"]["r"] == pytest.approx(1 / 3)


@pytest.mark.slow
def test_the_command_prints_numbers_of_one_token_of_each_stack(capsys: pytest.CaptureFixture[str]) -> None:
    """The feed-forward layers of six layers of width 64 take 6 · 16d² FLOPs a token in both stacks."""
    sizes = ["d_model=64", "d_ff=256", "n_heads=2", "vocab_size=100"]
    assert main(["cost", "transformer-base", *sizes, "--rows", "2", "--length", "16", "--hardware", "h100"]) == 0
    out = capsys.readouterr().out
    for stack in ("encoder", "decoder"):
        (line,) = [line for line in out.splitlines() if line.startswith(f"{stack} feed-forward")]
        assert f"{6 * 16 * 64**2:,}" in line and "6 · 16d²" in line
    assert "one of the source in the encoder, one of the target elsewhere" in " ".join(out.split())


def test_layers_that_differ_have_no_formula() -> None:
    spec = qkv.preset("gpt2", n_layers=2)
    mixed = spec.replace({"decoder.blocks.0.feedforward.d_ff": 100})
    assert "decoder feed-forward" not in formulas(mixed) and "decoder feed-forward" in formulas(spec)
    assert formulas(qkv.preset("rnnsearch")) == {}
