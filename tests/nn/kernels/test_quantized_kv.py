"""Attention over codes, by the native kernel and by PyTorch's operations, against the same keys and values turned back."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qkv.core.layout import Layout
from qkv.nn.attention import tap
from qkv.nn.attention.attend import attend
from qkv.nn.kernels import quantized_kv as coded
from qkv.nn.kernels.native import compiler as compiled
from qkv.nn.kernels.native import quantized_kv as native
from qkv.nn.kv_cache.quantization import QuantizedKV, quantize
from qkv.nn.patterns.basic import causal, window
from qkv.nn.positions.base import Widths
from qkv.nn.positions.bias import ALiBi

B, GROUP, TAIL = 2, 8, 5


@pytest.fixture(params=["native", "PyTorch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "PyTorch":
        monkeypatch.setattr(native, "serves", lambda codes, rows: False)
    elif compiled.library("quantized_kv") is None:
        pytest.skip("there is no C++ compiler here, and the kernels can't be built")
    return str(request.param)


def held(tokens: int, heads: int, width: int, bits: Any, per: Any, seed: int) -> QuantizedKV:
    """Keys or values with channels of unlike size and center, as they come."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(B, heads, tokens + TAIL, width, generator=random)
    x = x * torch.rand(width, generator=random) * 3 + torch.randn(width, generator=random)
    return QuantizedKV(quantize(x[:, :, :tokens], bits, per, GROUP), x[:, :, tokens:])


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(
    ("queries", "heads", "kv_heads", "d", "e", "settings"),
    [
        (1, 4, 2, 64, 64, {}),
        (1, 2, 2, 128, 20, {"pattern": causal()}),
        (2, 6, 2, 24, 64, {"pattern": causal() & window(11), "softcap": 5.0}),
        (3, 4, 1, 7, 128, {"pattern": causal(), "scale": 0.3}),
    ],
)
def test_codes_give_what_they_stand_for(
    way: str, bits: int, queries: int, heads: int, kv_heads: int, d: int, e: int, settings: dict[str, Any]
) -> None:
    tokens = 6 * GROUP
    k, v = held(tokens, kv_heads, d, bits, "channel", 1), held(tokens, kv_heads, e, bits, "token", 2)
    q = torch.randn(B, queries, heads, d, generator=torch.Generator().manual_seed(3))
    bias = ALiBi().module(Widths(heads * d, heads, d, None)).bias() if queries == 2 else None
    kv_layout = Layout.from_lengths([tokens + TAIL, tokens - 3], tokens + TAIL, side="left")
    layout = kv_layout.slice(tokens + TAIL - queries, tokens + TAIL)
    about = {"layout": layout, "kv_layout": kv_layout, "bias": bias, "clean": True, **settings}
    found = attend(q, k, v, **about)
    wanted = attend(q, k.dequantize(), v.dequantize(), backend="reference", **about)
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=2e-5)


def test_a_query_that_sees_nothing_gets_zero(way: str) -> None:
    k, v = held(2 * GROUP, 1, 16, 8, "channel", 1), held(2 * GROUP, 1, 16, 8, "token", 2)
    hidden = torch.full((1, 1, 1, 2 * GROUP + TAIL), float("-inf"))
    out = attend(torch.randn(B, 1, 1, 16), k, v, bias=hidden, clean=True)
    assert torch.equal(out, torch.zeros_like(out))


def test_many_heads_and_rows_with_room_for_more(way: str) -> None:
    """Codes are a view of a larger buffer, as a cache has them."""
    k = held(8 * GROUP, 3, 32, 4, "channel", 4).codes
    cut = k.groups(0, 5)
    assert not cut.data.is_contiguous()
    q, out = torch.randn(B, 3, 4, 32), torch.empty(B, 3, 4, 50)
    coded.write_scores(q, cut, out)
    torch.testing.assert_close(out[..., : 5 * GROUP], q @ cut.dequantize().mT, atol=1e-4, rtol=1e-4)
    values, p = held(8 * GROUP, 3, 32, 4, "token", 5).codes.groups(0, 5), torch.rand(B, 3, 4, 50)
    torch.testing.assert_close(coded.mixed(p, values), p[..., : 5 * GROUP] @ values.dequantize(), atol=1e-4, rtol=1e-4)


def test_who_looks_or_trains_gets_keys_turned_back() -> None:
    k, v = held(2 * GROUP, 1, 16, 8, "channel", 1), held(2 * GROUP, 1, 16, 8, "token", 2)
    q = torch.randn(B, 1, 1, 16)
    plain = attend(q, k, v, clean=True)
    with tap.record_attention() as requests:
        seen = attend(q, k, v, clean=True)
    torch.testing.assert_close(seen, plain, atol=1e-5, rtol=1e-5)
    assert requests[0].k.shape == (B, 2 * GROUP + TAIL, 1, 16)
    _, lse = attend(q, k, v, clean=True, return_lse=True)
    assert lse.shape == (B, 1, 1)
    q.requires_grad_()
    attend(q, k, v, clean=True).sum().backward()
    assert q.grad is not None


@pytest.fixture
def unit() -> None:
    if native._amx() is None:
        pytest.skip("this CPU has no matrix unit, or there is no C++ compiler")


def products(rows: int, width: int, bits: Any = 4, heads: int = 3) -> list[tuple[torch.Tensor, ...]]:
    """Scores, then mixed values, over three groups of 128 tokens: as they are made, in float64, and of floats in bf16."""
    random = torch.Generator().manual_seed(rows)
    x = torch.randn(B, heads, 4 * 128, width, generator=random) * torch.rand(width, generator=random) * 3
    keys, values = (quantize(x + 1, bits, per, 128).groups(0, 3) for per in ("channel", "token"))
    q, p = (torch.randn(B, heads, rows, n, generator=random) for n in (width, 3 * 128 + TAIL))
    p, found = p.mul_(3).exp_(), torch.empty(B, heads, rows, 3 * 128 + TAIL)
    native.scores(q, keys, found)
    made = found[..., : 3 * 128], native.mixed(p, values)
    given = (q, keys.dequantize().double().mT), (p[..., : 3 * 128], values.dequantize().double())
    return [(one, x.double() @ y, x.bfloat16().double() @ y) for one, (x, y) in zip(made, given, strict=True)]


@pytest.mark.parametrize("rows", [1, 2, 4, 5, 8])
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_matrix_unit_loses_less_than_bf16_does(unit: None, rows: int, width: int, bits: int) -> None:
    for found, wanted, rounded in products(rows, width, bits):
        assert 0 < (found - wanted).norm() < 0.5 * (rounded - wanted).norm()


@pytest.mark.parametrize(("rows", "width", "bits"), [(9, 64, 4), (4, 32, 4), (4, 24, 8)])
def test_what_a_matrix_unit_does_not_take_is_read_as_before(unit: None, rows: int, width: int, bits: int) -> None:
    for found, wanted, _ in products(rows, width, bits):
        assert (found - wanted).norm() < 1e-5 * wanted.norm()


def test_every_thread_has_a_matrix_unit(unit: None) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        for found, wanted, rounded in products(4, 128):
            assert (found - wanted).norm() < 0.5 * (rounded - wanted).norm()
    finally:
        torch.set_num_threads(before)


def test_the_whole_way_by_a_matrix_unit(unit: None) -> None:
    random = torch.Generator().manual_seed(0)
    x, y = (torch.randn(B, 2, 300, 64, generator=random) for _ in range(2))
    k, v = (
        QuantizedKV(quantize(z[:, :, :256], 4, per, 128), z[:, :, 256:]) for z, per in ((x, "channel"), (y, "token"))
    )
    q = torch.randn(B, 1, 8, 64, generator=random)
    wanted = attend(q, k.dequantize(), v.dequantize(), backend="reference")
    torch.testing.assert_close(attend(q, k, v, clean=True), wanted, atol=5e-4, rtol=1e-3)
