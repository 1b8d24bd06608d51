"""From spec to module: device, dtype, and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import qkv
from qkv.io.families import preset
from qkv.nn.models.build import build, outline
from qkv.nn.models.transformer import TransformerModel

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


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("gpt2", {"n_layers": 2, "d_model": 16, "n_heads": 4}),
        ("t5-small", {"n_layers": 1, "d_model": 16, "n_heads": 4}),
        ("mixtral-8x7b", {"n_layers": 1, "d_model": 16, "n_heads": 4, "n_kv_heads": 2, "d_ff": 8}),
        ("bert-base", {"n_layers": 1, "d_model": 16, "n_heads": 4}),
    ],
)
def test_an_outline_has_no_memory_and_the_values_of_the_model(name: str, sizes: dict[str, int]) -> None:
    spec = preset(name, vocab_size=40, **sizes)
    model, (shell, draws) = build(spec, seed=5), outline(spec, seed=5)
    assert draws is not None and all(p.is_meta for p in shell.parameters())
    for path, parameter in model.named_parameters(remove_duplicate=False):
        assert path in draws and torch.equal(draws.value(path).to(parameter), parameter), path
    for (path, buffer), (other, made) in zip(model.named_buffers(), shell.named_buffers(), strict=True):
        assert path == other and torch.equal(buffer, made)


def test_what_a_module_fills_itself_is_kept() -> None:
    class Early(TransformerModel):
        def __init__(self, spec: Any) -> None:
            super().__init__(spec)
            self.scale = nn.Parameter(torch.full((3,), 2.0))

    class Late(TransformerModel):
        def __init__(self, spec: Any) -> None:
            super().__init__(spec)
            self.other, self.recurrent = nn.Linear(2, 3), nn.LSTM(2, 3)

    shell, draws = outline(SPEC, seed=1, cls=Early)
    assert draws is not None and "scale" not in draws and shell.scale.tolist() == [2.0] * 3
    made, draws = outline(SPEC, seed=1, cls=Late)
    assert draws is not None and made.decoder.norm.weight.is_meta
    for path, parameter in build(SPEC, seed=1, cls=Late).named_parameters():
        value = draws.value(path) if path in draws else made.get_parameter(path)
        assert torch.equal(value.to(parameter), parameter), path


def test_a_model_with_a_parameter_that_is_filled_in_part_is_made_whole() -> None:
    class Partly(TransformerModel):
        def __init__(self, spec: Any) -> None:
            super().__init__(spec)
            self.scale = nn.Parameter(torch.empty(3))
            with torch.no_grad():
                self.scale[:2] = 1.0

    made, none = outline(SPEC, seed=1, cls=Partly)
    assert none is None and torch.equal(made.scale, build(SPEC, seed=1, cls=Partly).scale)


def test_an_outline_of_a_recurrent_model_has_its_values() -> None:
    spec = preset("rnnsearch", vocab_size=40, d_e=8, d_h=8, d_s=8)
    model, (shell, draws) = build(spec, seed=5), outline(spec, seed=5)
    assert draws is not None and all(p.is_meta for p in shell.parameters())
    for path, parameter in model.named_parameters():
        assert torch.equal(draws.value(path).to(parameter), parameter), path


def test_a_parameter_that_two_modules_register_stays_one() -> None:
    class Shares(TransformerModel):
        def __init__(self, spec: Any) -> None:
            super().__init__(spec)
            own = nn.Parameter(torch.empty(3, 4))
            self.one, self.two = nn.ParameterList([own]), nn.ParameterList([own])

    shell, draws = outline(SPEC, seed=1, cls=Shares)
    assert draws is not None and shell.one[0] is shell.two[0] and shell.one[0].is_meta
    assert torch.equal(draws.value("two.0"), build(SPEC, seed=1, cls=Shares).one[0])
