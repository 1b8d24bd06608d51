"""From spec to module: device, dtype, and what is left alone."""

from __future__ import annotations

import pytest
import torch

import qkv
from qkv.families import preset
from qkv.models.build import build
from qkv.models.transformer import TransformerModel

SPEC = preset("gpt2", vocab_size=40, d_model=16, n_heads=4, n_layers=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_dtype_of_every_parameter_and_no_other(dtype: torch.dtype) -> None:
    model = build(SPEC, dtype=dtype)
    assert {p.dtype for p in model.parameters()} == {dtype} and model.dtype == dtype
    assert model(torch.zeros(1, 3, dtype=torch.long)).dtype == dtype
    assert torch.get_default_dtype() == torch.float32


def test_the_default_dtype_survives_a_failure() -> None:
    with pytest.raises(ValueError, match="rotary positions rotate pairs"):
        build(SPEC.replace({"decoder.position": {"kind": "rotary", "fraction": 0.25}}), dtype=torch.float64)
    assert torch.get_default_dtype() == torch.float32


def test_meta_costs_nothing_and_has_every_shape() -> None:
    shell, model = build(SPEC, device="meta"), build(SPEC)
    assert {p.device.type for p in shell.parameters()} == {"meta"}
    assert {n: p.shape for n, p in shell.named_parameters()} == {n: p.shape for n, p in model.named_parameters()}


def test_a_class_of_ones_own() -> None:
    class Mine(TransformerModel):
        pass

    assert type(build(SPEC, cls=Mine)) is Mine


def test_uninitialized_models_take_weights() -> None:
    model, filled = build(SPEC, initialized=False), build(SPEC, seed=3)
    model.load_state_dict(filled.state_dict())
    x = torch.tensor([[1, 2, 3]])
    assert torch.equal(model.eval()(x), filled.eval()(x))


def test_the_public_build_is_the_same_model() -> None:
    x = torch.tensor([[1, 2, 3]])
    model = qkv.build(SPEC, seed=2).eval()
    assert torch.equal(model(x), build(SPEC, seed=2).eval()(x)) and hasattr(model, "generate")
