"""The backend `decode`: the reference's results, whatever heads share keys, whatever is hidden, capped or biased."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.kernels.backends import choose
from qkv.nn.kernels.cpu import few_queries
from qkv.nn.kernels.native import decoding as native
from qkv.nn.kernels.native.compiler import library
from qkv.nn.kernels.plan import Plan
from qkv.nn.kernels.request import Request
from qkv.nn.patterns.basic import Full, causal, sinks, window
from qkv.nn.positions.base import Widths
from qkv.nn.positions.bias import ALiBi

pytestmark = pytest.mark.skipif(library("decoding") is None, reason="there is no C++ compiler here")

S = 600  # more than one part of keys


@pytest.fixture(autouse=True)
def _no_gradients() -> Any:
    with torch.inference_mode():
        yield


def made(queries: int, heads: int, kv_heads: int, d: int, e: int, keys: int = S, dtype: Any = torch.float32) -> Any:
    random = torch.Generator().manual_seed(0)
    q = torch.randn(2, queries, heads, d, generator=random)
    k, v = (torch.randn(2, kv_heads, keys + 9, w, generator=random)[:, :, :keys].transpose(1, 2) for w in (d, e))
    return tuple(x.to(dtype) for x in (q, k, v))


def layouts(queries: int, keys: int = S) -> dict[str, Layout]:
    kv_layout = Layout.from_lengths([keys, keys - 30], keys, side="left")
    return {"layout": kv_layout.slice(keys - queries, keys), "kv_layout": kv_layout}


@pytest.mark.parametrize(
    ("queries", "heads", "kv_heads", "d", "e", "options"),
    [
        (1, 4, 4, 64, 64, {}),
        (1, 8, 2, 128, 128, {"pattern": causal() & window(70)}),
        (3, 4, 1, 24, 40, {"pattern": causal(), "softcap": 3.0, "scale": 0.4}),
        (2, 6, 2, 256, 8, {"pattern": causal() & window(9) | sinks(3), "return_lse": True}),
        (5, 3, 1, 16, 16, {"pattern": causal(), "sinks": torch.tensor([0.5, -1.0, 2.0])}),
    ],
)
def test_the_references_results(queries: int, heads: int, kv_heads: int, d: int, e: int, options: Any) -> None:
    q, k, v = made(queries, heads, kv_heads, d, e)
    bias = ALiBi().module(Widths(heads * d, heads, d, None)).bias() if queries != 2 else None
    about = {**layouts(queries), "bias": bias, **options}
    found, wanted = (attend(q, k, v, backend=name, **about) for name in ("decode", "reference"))
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=2e-5)


@settings(deadline=None, max_examples=40)
@given(
    queries=st.integers(1, 4),
    group=st.integers(1, 4),
    kv_heads=st.integers(1, 3),
    width=st.sampled_from([8, 24, 64, 128]),
    keys=st.integers(1, 1100),
    seed=st.integers(0, 99),
)
def test_any_shape_and_mask(queries: int, group: int, kv_heads: int, width: int, keys: int, seed: int) -> None:
    with torch.inference_mode():
        q, k, v = made(queries, group * kv_heads, kv_heads, width, width, keys)
        hidden = torch.rand(2, 1, queries, keys, generator=torch.Generator().manual_seed(seed)) < 0.5
        bias = torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))
        found, wanted = (attend(q, k, v, bias=bias, backend=name) for name in ("decode", "reference"))
        torch.testing.assert_close(found, wanted, atol=2e-5, rtol=2e-5)


def test_bf16_is_nearer_than_the_fused_function() -> None:
    q, k, v = made(1, 8, 2, 64, 64)
    exact = attend(q, k, v, backend="reference")
    low = tuple(x.bfloat16() for x in (q, k, v))
    errors = [float((attend(*low, backend=name).float() - exact).norm()) for name in ("decode", "sdpa")]
    assert errors[0] <= 1.1 * errors[1]
    assert attend(*low, backend="decode").dtype == torch.bfloat16


def test_a_query_that_sees_nothing_gets_zero() -> None:
    q, k, v = made(2, 4, 2, 16, 16)
    bias = torch.zeros(2, 1, 2, S)
    bias[1, :, 0] = float("-inf")
    out, lse = attend(q, k, v, bias=bias, backend="decode", return_lse=True)
    assert not out[1, 0].any() and out[1, 1].any()
    assert bool((lse[1, :, 0] == float("-inf")).all()) and bool(lse[0].isfinite().all())


def test_what_is_hidden_does_not_matter() -> None:
    q, k, v = made(1, 4, 2, 16, 16)
    hidden = torch.zeros(1, 1, 1, S)
    hidden[..., 100:200] = float("-inf")
    expected = attend(q, k, v, bias=hidden, backend="decode")
    k[:, 100:200], v[:, 100:200] = float("nan"), float("inf")
    assert torch.equal(attend(q, k, v, bias=hidden, backend="decode"), expected)
    v[:, 5] = float("nan")
    assert bool(attend(q, k, v, bias=hidden, backend="decode").isnan().all())


def test_a_row_does_not_depend_on_its_batch_and_threads() -> None:
    q, k, v = made(1, 4, 2, 64, 64)
    before = torch.get_num_threads()
    together = attend(q, k, v, backend="decode")
    torch.set_num_threads(3)
    try:
        assert torch.equal(attend(q[1:], k[1:], v[1:], backend="decode"), together[1:])
    finally:
        torch.set_num_threads(before)


def request(q: Any, k: Any, v: Any, **about: Any) -> Request:
    given = {"bias": None, "scale": 1.0, "dropout": 0.0, "softcap": None, "return_lse": False, "plan": Plan(), **about}
    return Request(q, k, v, Full(), Layout.full(q.shape[1]), Layout.full(k.shape[1]), **given)


def test_where_it_is_chosen() -> None:
    assert choose(request(*made(1, 4, 2, 16, 16))) == "decode"
    assert choose(request(*made(2, 4, 2, 16, 16))) == "decode"
    assert choose(request(*made(1, 4, 2, 16, 16), softcap=2.0)) == "decode"
    q, k, v = made(4, 4, 2, 16, 16)
    assert choose(request(q, q, q)) == "sdpa"  # a short prompt
    assert choose(request(*made(1, 4, 2, 16, 16, dtype=torch.float64))) == "sdpa"
    assert choose(request(*made(1, 4, 2, 12, 12))) == "sdpa"
    with torch.inference_mode(False), torch.enable_grad():
        assert choose(request(q[:, :1].clone().requires_grad_(), k.clone(), v.clone())) == "sdpa"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ((17, 1, 1, 16, 16), "up to 16 queries"),
        ((1, 1, 1, 12, 12), "multiples of 8"),
    ],
)
def test_what_it_refuses(given: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        attend(*made(*given), backend="decode")


def test_without_kernels_others_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda name: None)
    q, k, v = made(1, 4, 2, 16, 16)
    assert "could not be built" in (few_queries.refuses(request(q, k, v)) or "")
    assert choose(request(q, k, v)) == "sdpa"


def test_transforms_and_autocast_go_elsewhere() -> None:
    q, k, v = made(1, 4, 2, 16, 16)
    found = torch.func.vmap(lambda q: attend(q, k, v))(q[None])
    torch.testing.assert_close(found[0], attend(q, k, v, backend="reference"), atol=1e-5, rtol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        assert choose(request(q, k, v)) == "sdpa"
