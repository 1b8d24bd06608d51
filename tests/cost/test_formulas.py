"""Formulas beside the numbers of `qkv cost`: evaluated, they give the numbers."""

import re

import pytest

import qkv
from qkv.cost.flops import Shape, parts
from qkv.cost.formulas import formulas


def value(formula, **symbols):
    """Evaluate a formula such as `12 · (8d² + 4·S·d)`."""
    text = re.sub(r"([\d.]+)d²", r"\1*d**2", formula).replace("d²", "d**2").replace("·", "*")
    return eval(text, {"__builtins__": {}}, symbols)


SYMBOLS = {
    "gpt2": {"d": 768, "V": 50257, "S": 256.5},
    "bert-base": {"d": 768, "V": 30522, "S": 512},
    "llama-3-8b": {"d": 4096, "V": 128256, "f": 14336, "S": 256.5},
    "mixtral-8x7b": {"d": 4096, "V": 32000, "f": 14336, "S": 256.5, "E": 8, "K": 2},
}


@pytest.mark.parametrize("name", SYMBOLS)
def test_formulas_give_the_numbers(name):
    spec, shape = qkv.preset(name), Shape(2, 512)
    known, seen = formulas(spec), 0
    for part in parts(spec, shape):
        own = known.get(part.name)
        if own is None:
            continue
        if own.flops:
            per_token = value(own.flops, **SYMBOLS[name])
            assert part.flops / shape.tokens == pytest.approx(per_token, rel=0.01), part.name
            seen += 1
        if own.parameters:
            biases = SYMBOLS[name]["V"] + 4 * SYMBOLS[name]["d"] if part.name == "head" else 0
            expected = value(own.parameters, **SYMBOLS[name])
            assert part.parameters == pytest.approx(expected, rel=0.01, abs=biases), part.name
            seen += 1
    assert seen >= 5


def test_layers_that_differ_have_no_formula():
    spec = qkv.preset("gpt2", n_layers=2)
    mixed = spec.replace({"decoder.blocks.0.feedforward.d_ff": 100})
    assert "decoder feed-forward" not in formulas(mixed) and "decoder feed-forward" in formulas(spec)
    assert formulas(qkv.preset("rnnsearch")) == {}
