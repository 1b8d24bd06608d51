"""Norms against their formulas in fp64."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.layers.norm import LayerNorm, NoNorm, Norm, RMSNorm

D = 12


def made(spec: Norm, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    module = spec.module(D).to(dtype)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_layernorm_is_its_equation(bias: bool, eps: float) -> None:
    module, x = made(LayerNorm(eps=eps, bias=bias)), torch.randn(3, 4, D, dtype=torch.float64) * 3 + 2
    mean = x.mean(-1, keepdim=True)
    expected = (x - mean) / ((x - mean).square().mean(-1, keepdim=True) + eps).sqrt() * module.weight
    torch.testing.assert_close(module(x), expected + module.bias if bias else expected)


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("eps", [1e-6, 0.5])
def test_rmsnorm_is_its_equation(offset: float, eps: float) -> None:
    module, x = made(RMSNorm(eps=eps, offset=offset)), torch.randn(3, 4, D, dtype=torch.float64) * 3 + 2
    expected = x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * (offset + module.weight)
    torch.testing.assert_close(module(x), expected)


@pytest.mark.parametrize("spec", [LayerNorm(), RMSNorm()])
def test_statistics_are_fp32(spec: Norm) -> None:
    x = (torch.randn(8, D) * 300).half()  # squares overflow in fp16
    exact = made(spec).double()
    half = spec.module(D)
    half.load_state_dict(exact.state_dict())
    out = half.half()(x)
    assert out.dtype == torch.float16
    torch.testing.assert_close(out.double(), exact(x.double()), atol=2e-2, rtol=2e-2)


def test_an_offset_gain_is_added_and_multiplied_before_rounding() -> None:
    """Gemma: in bf16, 1 + 0.003 would round to 1; the product is rounded, once."""
    module = RMSNorm(offset=1.0).module(D).bfloat16()
    torch.nn.init.constant_(module.weight, 0.003)  # type: ignore[arg-type]
    x = torch.randn(64, D).bfloat16()
    wide = x.double()
    gain = 1 + module.weight.double()  # type: ignore[operator]
    exact = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain
    assert torch.equal(module(x), exact.bfloat16())
    assert not torch.equal(exact.bfloat16(), (exact / gain).bfloat16())


def test_no_norm_is_the_identity() -> None:
    x = torch.randn(2, D)
    assert torch.equal(NoNorm().module(D)(x), x) and NoNorm().cost(D, 7).parameters == 0


@pytest.mark.parametrize("spec", [NoNorm(), LayerNorm(), LayerNorm(bias=False), RMSNorm(), RMSNorm(offset=1)])
def test_parameters_are_counted_and_begin_as_the_identity_scale(spec: Norm) -> None:
    module = spec.module(D)
    assert spec.cost(D).parameters == sum(p.numel() for p in module.parameters())
    for name, parameter in module.named_parameters():
        parameter.data.fill_(module.initial(name))  # type: ignore[operator]
    x = torch.randn(4, D)
    if isinstance(spec, LayerNorm):
        torch.testing.assert_close(module(x).std(-1, correction=0), torch.ones(4), atol=1e-3, rtol=0)
    elif isinstance(spec, RMSNorm):
        torch.testing.assert_close(module(x).square().mean(-1), torch.ones(4), atol=1e-3, rtol=0)


@pytest.mark.parametrize("make", [lambda: LayerNorm(eps=0), lambda: RMSNorm(eps=-1)])
def test_eps_has_to_be_positive(make: object) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        make()  # type: ignore[operator]
