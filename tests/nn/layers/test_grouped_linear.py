"""Grouped products against a loop over experts, and PyTorch's kernel, which runs on a CPU too, against both."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from qkv.nn.kernels.products import onednn
from qkv.nn.layers.grouped_linear import GroupedLinear, _by_kernel, _products

ENDS = [[3, 3, 10, 12], [0, 0, 0, 12], [1, 4, 5, 9], [0, 0, 0, 0]]  # rows of four experts among twelve


def looped(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    stops = ends.tolist()
    parts = [x[a:b] @ w.T for a, b, w in zip([0, *stops], stops, weight, strict=False)]
    return torch.cat([*parts, x.new_zeros(len(x) - stops[-1], weight.shape[1])])


def results(f: Callable[..., Tensor], dtype: torch.dtype, ends: list[int]) -> list[Tensor]:
    """Output and gradients if what stands after the last end is not a number."""
    generator = torch.Generator().manual_seed(0)
    x, weight, grad = (torch.randn(*s, generator=generator).to(dtype) for s in ((12, 16), (4, 8, 16), (12, 8)))
    x[ends[-1] :] = float("nan")
    x, weight = x.requires_grad_(), weight.requires_grad_()
    out = f(x, weight, torch.tensor(ends))
    return [out, *torch.autograd.grad((out * grad).sum(), [x, weight])]


@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_products_are_a_loop_over_experts(ends: list[int]) -> None:
    torch.testing.assert_close(results(_products, torch.float64, ends), results(looped, torch.float64, ends))


@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_products_by_onednn_are_a_loop_over_experts(ends: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "is_faster", lambda: True)
    monkeypatch.setattr(onednn, "LEAST", 1)
    found, wanted = results(_products, torch.float32, ends), results(looped, torch.float64, ends)
    for mine, plain in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.double(), plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_the_kernel_gives_the_same_and_zeros_after_the_last_end(ends: list[int]) -> None:
    found, wanted = results(_by_kernel, torch.bfloat16, ends), results(looped, torch.float32, ends)
    for mine, plain in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.float(), plain, atol=0.06, rtol=0.06)
    assert (found[0][ends[-1] :] == 0).all() and (found[1][ends[-1] :] == 0).all()


def test_autocast_multiplies_in_its_dtype() -> None:
    layer = GroupedLinear(4, 16, 8)
    torch.nn.init.normal_(layer.weight)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(torch.randn(12, 16), torch.tensor(ENDS[0]))
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.dtype == torch.float32
    assert repr(layer) == "GroupedLinear(4 × 16 → 8)"
