"""quantized = dequantized: a model with codes in place of weights computes what it computes with the numbers that these
stand for, in one pass, in steps, as the base of an adapter, and after it was saved and loaded.

How far codes are from the weights is tested in tests/nn/quantization.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from axes import BLOCKS, FAMILIES, HEADS, named, sees_ahead, words
from selection import Combination, Contract
from small import gradients, ids, padded, same, same_gradients, spec, stirred
from torch import Tensor

import qkv
from qkv.nn.layers.lora import LoRA, adapt
from qkv.nn.layers.quantized import quantized
from qkv.nn.models.quantized.quantize import quantize
from qkv.nn.models.quantized.select import matrices
from qkv.nn.patterns.basic import causal, full, window
from qkv.nn.positions.absolute import Learned
from qkv.nn.positions.bias import ALiBi
from qkv.nn.positions.rotary import Rotary
from qkv.nn.quantization.scheme import Scheme, Weights

SCHEMES: Mapping[str, Scheme] = {
    "int8": Scheme(weights="int8"),
    "int8-groups": Scheme(weights="int8", group_size=8, symmetric=False),
    "int4": Scheme(weights="int4", group_size=16),
    "int4-zeros": Scheme(weights="int4", symmetric=False),
    "nf4": Scheme(weights="nf4"),
    "fp8": Scheme(weights="fp8"),
    "mxfp4": Scheme(weights="mxfp4"),
}
TOKENS, PROMPT, TOLERANCE = 7, 4, 1e-6  # codes are dequantized in single precision


class Pair:
    """A model with quantized weights, and the same with the numbers that they stand for."""

    def __init__(self, case: Combination) -> None:
        built = spec(case.family, case.pattern, case.position, "auto", case.heads, case.block)
        widths = {f"{stack}.blocks.*.feedforward.d_ff": 32 for stack, _ in built.stacks()}
        self.spec = built.replace({"d_model": 32} | (widths if self.has_width(case.block) else {}))
        self.dense = stirred(qkv.build(self.spec, dtype=torch.float64)).eval()
        self.codes, scheme = copy.deepcopy(self.dense), case.scheme
        whole = scheme.group_size or scheme.format.only_group or 2  # what doesn't take the scheme stays as it is
        apart = [path for path, layer in matrices(self.codes).items() if layer.weight.shape[-1] % whole]
        quantize(self.codes, scheme, keep=apart)
        with torch.no_grad():
            for path, matrix in quantized(self.codes).items():
                self.dense.get_parameter(f"{path}.weight").copy_(matrix.dense())
        layout = padded([5, TOKENS], "left", TOKENS)
        self.paired = case.family == "encoder-decoder"
        self.inputs: dict[str, Any] = {"ids": ids(2, TOKENS, seed=1), "layout": layout}
        if self.paired:
            source = {"ids": ids(2, 4, seed=2), "layout": padded([4, 3], "right", 4)}
            self.inputs = {**source, "target": self.inputs["ids"], "target_layout": layout}
        self.real = layout.valid

    @staticmethod
    def has_width(block: Mapping[str, Any]) -> bool:
        return "experts" not in str(block.get("feedforward")) and block.get("feedforward") != "none"

    def outputs(self, model: Any) -> Tensor:
        return model(**self.inputs)[self.real]


@torch.no_grad()
def in_one_pass(pair: Pair, tmp_path: Path) -> None:
    same(pair.outputs(pair.codes), pair.outputs(pair.dense), TOLERANCE)


@torch.no_grad()
def in_steps(pair: Pair, tmp_path: Path) -> None:
    tokens = ids(2, TOKENS, seed=3)

    def steps(model: Any) -> Tensor:
        cache = (
            model.start(source=pair.inputs["ids"], source_layout=pair.inputs["layout"])
            if pair.paired
            else model.start(2)
        )
        parts = [tokens[:, :PROMPT], *tokens[:, PROMPT:].split(1, 1)]
        return torch.cat([model.step(part, cache, all_positions=True) for part in parts], 1)

    same(steps(pair.codes), steps(pair.dense), TOLERANCE)


def under_an_adapter(pair: Pair, tmp_path: Path) -> None:
    found = []
    for model in (pair.codes, pair.dense):
        adapt(model, LoRA(rank=2), seed=1)
        generator = torch.Generator().manual_seed(2)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("lora_b"):
                    parameter.normal_(generator=generator)
        loss = pair.outputs(model).square().mean()
        loss.backward()
        trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        found.append((loss, {name: g for name, g in gradients(model).items() if name in trained}))
    (loss, mine), (wanted, theirs) = found
    assert mine
    same(loss, wanted, TOLERANCE)
    same_gradients(mine, theirs, TOLERANCE)


@torch.no_grad()
def saved(pair: Pair, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* is saved under the model type")
        pair.codes.save(tmp_path / "model")
    again = qkv.load(tmp_path / "model", device="cpu").model
    assert quantized(again).keys() == quantized(pair.codes).keys()
    mine, theirs = (model.state_dict() for model in (again, pair.codes))
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(bits(tensor), bits(theirs[name])) for name, tensor in mine.items())
    same(pair.outputs(again), pair.outputs(pair.codes), 1e-12)


def bits(tensor: Tensor) -> Tensor:
    """PyTorch doesn't compare fp8."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor


WAYS: Mapping[str, Callable[[Pair, Path], None]] = {
    "pass": in_one_pass,
    "steps": in_steps,
    "adapter": under_an_adapter,
    "saved": saved,
}


def senseless(case: Combination) -> str | None:
    if case.way is in_steps and (case.family == "encoder" or sees_ahead(case.pattern, PROMPT)):
        return "steps: what sees what comes later can't be decoded step by step"
    return None


def contract() -> Contract:
    axes = {
        "scheme": named(SCHEMES),
        "way": named(WAYS),
        "family": words(*FAMILIES),
        "block": named(BLOCKS),
        "heads": named(HEADS),
        "pattern": named({"full": full(), "causal": causal(), "window": causal() & window(3)}),
        "position": named({"learned": Learned(), "rotary": Rotary(), "alibi": ALiBi()}),
    }
    return Contract(axes, senseless, fast=1, whole=2)


@pytest.mark.contract(contract())
def test_quantized_models_compute_as_their_dense_copies(case: Combination, tmp_path: Path) -> None:
    case.way(Pair(case), tmp_path)


def test_every_format_takes_part() -> None:
    assert {scheme.weights for scheme in SCHEMES.values()} == set(get_args(Weights))
