"""The table of layers: orders of growth against exact counts, by the slope of log counts over log sizes."""

from __future__ import annotations

import math

import pytest
import torch

from qkv.core.layout import Layout
from qkv.nn.attention.convolution import Convolution
from qkv.nn.attention.mixer import Pass
from qkv.nn.cost.complexity import LayerComplexity, compare
from qkv.nn.patterns.basic import causal
from qkv.nn.positions.base import PositionModule

LENGTH_ORDER = {
    "self-attention": (2, 0, 0),
    "recurrent": (1, 1, 1),
    "convolution": (1, 0, None),
    "windowed attention": (1, 0, 1),
    "linear attention": (1, 0, 0),
}
WIDTH_ORDER = {
    "self-attention": 1,
    "recurrent": 2,
    "convolution": 2,
    "windowed attention": 1,
    "linear attention": 2,
}


def by_name(**sizes: int) -> dict[str, LayerComplexity]:
    return {layer.name: layer for layer in compare(**sizes)}


def slope(small: float, large: float, factor: float) -> float:
    return math.log(large / small) / math.log(factor)


@pytest.mark.parametrize("name", LENGTH_ORDER)
def test_growth_with_the_length(name: str) -> None:
    small, large = (by_name(n=n, d=512)[name] for n in (1 << 14, 1 << 18))
    for attribute, order in zip(("flops", "sequential", "path"), LENGTH_ORDER[name], strict=True):
        if order is not None:
            assert slope(getattr(small, attribute), getattr(large, attribute), 16) == pytest.approx(order, abs=0.01)


def test_growth_with_the_width() -> None:
    small, large = by_name(n=4096, d=1024), by_name(n=4096, d=8192)
    for name, order in WIDTH_ORDER.items():
        assert slope(small[name].flops, large[name].flops, 8) == pytest.approx(order, abs=0.02), name


def test_growth_with_kernel_window_and_heads() -> None:
    base = by_name(n=1 << 14, d=512)
    assert by_name(n=1 << 14, d=512, kernel=6)["convolution"].flops == 2 * base["convolution"].flops
    wide = by_name(n=1 << 14, d=512, size=128)["windowed attention"]
    assert slope(base["windowed attention"].flops, wide.flops, 2) == pytest.approx(1, abs=0.01)
    split = by_name(n=1 << 14, d=512, heads=16)["linear attention"]
    assert slope(base["linear attention"].flops, split.flops, 2) == pytest.approx(-1, abs=0.1)


def test_dilated_convolutions_need_the_logarithm_of_the_length() -> None:
    assert [by_name(n=3**i, d=64)["convolution"].path for i in range(1, 9)] == list(range(1, 9))
    assert by_name(n=3**4 + 1, d=64)["convolution"].path == 5
    with pytest.raises(ValueError, match="a kernel of 1 token joins no tokens"):
        compare(n=4, d=64, kernel=1)


def test_the_path_of_dilated_convolutions_matches_gradients() -> None:
    """After as many layers the last of 27 tokens depends on the first, and after one layer less it does not."""
    layers = by_name(n=27, d=64)["convolution"].path
    for count, reached in ((layers, True), (layers - 1, False)):
        x = torch.randn(1, 27, 4, requires_grad=True)
        hidden = x
        for i in range(count):
            module = Convolution(kernel=3, dilation=3**i, pattern=causal()).module(4)
            torch.nn.init.ones_(module.kernel.weight)  # type: ignore[arg-type,union-attr]
            torch.nn.init.zeros_(module.kernel.bias)  # type: ignore[arg-type,union-attr]
            hidden = module(hidden, Pass.over(Layout.full(27), PositionModule()))
        hidden[0, -1].sum().backward()
        assert bool(x.grad[0, 0].abs().sum() > 0) is reached  # type: ignore[index]
