"""The table of layers: orders of growth against exact counts, by the slope of log counts over log sizes."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from qkv.core.layout import Layout
from qkv.nn.attention.convolution import Convolution
from qkv.nn.attention.linformer import Linformer
from qkv.nn.attention.lsh import LSHAttention
from qkv.nn.attention.mixer import Pass
from qkv.nn.cost.complexity import LayerComplexity, compare
from qkv.nn.patterns.basic import causal
from qkv.nn.patterns.sparse import Strided
from qkv.nn.positions.base import PositionModule

LENGTH_ORDER = {
    "self-attention": (2, 0, 0),
    "recurrent": (1, 1, 1),
    "convolution": (1, 0, None),
    "windowed attention": (1, 0, 1),
    "linear attention": (1, 0, 0),
    "sparse attention": (1.5, 0, 0),
    "Linformer": (1, 0, 0),
    "Reformer": (1, 0, None),
    "ring attention": (2, 0, 0),
}
WIDTH_ORDER = {
    "self-attention": 1,
    "recurrent": 2,
    "convolution": 2,
    "windowed attention": 1,
    "linear attention": 2,
    "sparse attention": 1,
    "Linformer": 1,
    "Reformer": 1,
    "ring attention": 1,
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


# -- the kinds that scale better ------------------------------------------------------------------------------------------


def counted(module: torch.nn.Module, n: int, d: int) -> int:
    """FLOPs of the products that PyTorch dispatches, in evaluation; fused attention would not be counted."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        module.eval()(torch.randn(1, n, d), Pass.over(Layout.full(n), PositionModule()))
    return counter.get_total_flops()


def test_linformer_is_what_its_layer_computes() -> None:
    n, d = 96, 32
    module = Linformer(n_heads=4, max_positions=n, rank=24).module(d)
    projections = 4 * 2 * n * d * d
    assert by_name(n=n, d=d, heads=4, rank=24)["Linformer"].flops == counted(module, n, d) - projections


def test_reformer_is_what_its_layer_computes() -> None:
    n, d = 256, 32
    module = LSHAttention(n_heads=4, pattern=causal(), chunk=16).module(d)
    projections = 3 * 2 * n * d * d  # queries are keys
    found = by_name(n=n, d=d, heads=4, chunk=16)["Reformer"]
    assert found.flops == pytest.approx(counted(module, n, d) - projections, rel=2e-3), "the rounds are weighed as well"
    assert found.path is None
    whole = by_name(n=n, d=d, heads=4)
    assert by_name(n=n, d=d, heads=4, chunk=n)["Reformer"].flops == whole["self-attention"].flops, "a chunk is exact"


def test_sparse_attention_is_counted_pair_by_pair_and_joins_all_in_two_layers() -> None:
    n, d, stride = 100, 32, 10
    allowed = (causal() & Strided(stride=stride)).mask(n)
    found = by_name(n=n, d=d, heads=4)["sparse attention"]
    assert found.flops == 4 * int(allowed.sum()) * d
    reached = allowed.float()
    assert not torch.equal(reached > 0, causal().mask(n)) and torch.equal(reached @ reached > 0, causal().mask(n))
    assert found.path == 2


def test_every_device_of_a_ring_computes_the_same_share() -> None:
    """In the zig-zag order, the pairs of each rank: an early and a late chunk of queries."""
    n, d, p = 64, 32, 4
    chunks = causal().mask(n).view(2 * p, -1, n)
    pairs = {int(chunks[i].sum() + chunks[-1 - i].sum()) for i in range(p)}
    found = by_name(n=n, d=d, heads=4, devices=p)["ring attention"]
    assert pairs == {n * (n + 1) // 2 // p} and found.flops == 4 * pairs.pop() * d
    assert (found.sequential, found.path) == (p, 1)


def test_a_ring_of_no_device_is_refused() -> None:
    with pytest.raises(ValueError, match="devices is a whole number of at least 1, not 0"):
        compare(n=8, d=8, devices=0)
