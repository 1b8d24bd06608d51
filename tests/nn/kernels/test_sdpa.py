"""The fused function: what it is given, and that it is the reference's equal."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.patterns.basic import by_head, causal, full, prefix, sinks, window
from qkv.nn.positions.base import Widths
from qkv.nn.positions.bias import ALiBi

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"pattern": causal()},
    "window": {"pattern": causal() & window(3)},
    "prefix": {"pattern": causal() | prefix(3)},
    "right": {"pattern": causal(), "layout": Layout.from_lengths([4, 7])},
    "left": {"pattern": causal(), "layout": Layout.from_lengths([4, 7], side="left")},
    "packed": {"pattern": causal(), "layout": Layout.packed([[3, 4], [2, 2]], 7)},
    "bias": {"bias": torch.randn(4, 7, 7, dtype=torch.float64)},
    "row-bias": {"bias": torch.randn(2, 1, 1, 7, dtype=torch.float64), "pattern": causal()},
    "alibi": {"bias": ALiBi().module(Widths(32, 4, 8, None)).bias(), "pattern": causal()},
    "hidden": {"bias": torch.full((7, 7), float("-inf"), dtype=torch.float64).triu(1)},
}


@pytest.mark.parametrize("value_width", [8, 5, 12])
@pytest.mark.parametrize("case", CASES)
def test_equals_the_reference_with_its_gradients(case: str, value_width: int) -> None:
    sizes = [(2, 7, 4, 8), (2, 7, 2, 8), (2, 7, 2, value_width)]
    tensors = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]
    weight = torch.randn(2, 7, 4, value_width, dtype=torch.float64)
    results = []
    for backend in ("sdpa", "reference"):
        out = attend(*tensors, backend=backend, **CASES[case])
        results.append((out.detach(), *torch.autograd.grad((out * weight).sum(), tensors)))
    torch.testing.assert_close(*results, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    "options, causal_flag, has_mask",
    [
        ({}, False, False),
        ({"pattern": causal()}, True, False),
        ({"pattern": causal() & full()}, True, False),
        ({"pattern": causal() & window(100)}, True, False),  # the window reaches past the start
        ({"pattern": causal(), "layout": Layout.from_lengths([4, 7])}, True, False),
        ({"pattern": causal(), "layout": Layout.from_lengths([4, 7], side="left")}, False, True),
        ({"pattern": causal() & window(3)}, False, True),
        ({"pattern": causal(), "layout": Layout.packed([[3, 4], [7]])}, False, True),
        ({"pattern": causal(), "bias": torch.zeros(7, 7)}, False, True),
    ],
)
def test_a_mask_is_made_only_where_the_host_cannot_rule_it_out(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], causal_flag: bool, has_mask: bool
) -> None:
    seen: dict[str, Any] = {}
    fused = F.scaled_dot_product_attention

    def spy(*args: Any, **kwargs: Any) -> torch.Tensor:
        seen.update(kwargs)
        return fused(*args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    attend(*(torch.randn(2, 7, 4, 8) for _ in range(3)), backend="sdpa", **options)
    assert seen["is_causal"] == causal_flag and (seen["attn_mask"] is not None) == has_mask


def test_one_new_token_after_a_cache_needs_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    fused = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *a, **kw: (seen.update(kw), fused(*a, **kw))[1])
    q, k = torch.randn(2, 1, 4, 8), torch.randn(2, 7, 4, 8)
    out = attend(q, k, k, pattern=causal(), layout=Layout.full(1, start=6), kv_layout=Layout.full(7), backend="sdpa")
    assert seen["attn_mask"] is None and not seen["is_causal"]
    torch.testing.assert_close(out, attend(q, k, k, backend="reference"))


BEFORE = Layout.from_lengths([9, 6], side="left")

GROUPED: dict[str, dict[str, Any]] = {
    "plain": {},
    "padded": {"kv_layout": BEFORE},
    "alibi": {"bias": ALiBi().module(Widths(32, 4, 8, None)).bias(), "kv_layout": BEFORE},
    "by-head": {"pattern": by_head(window(3), sinks(2))},
}


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("case", GROUPED)
def test_heads_that_share_keys_are_rows_of_one_for_a_new_token(
    monkeypatch: pytest.MonkeyPatch, case: str, heads: int
) -> None:
    seen: list[Any] = []
    fused = F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda q, *a, **kw: (seen.append((q.shape, kw)), fused(q, *a, **kw))[1]
    )
    q, k, v = (torch.randn(2, t, h, 8, dtype=torch.float64) for t, h in ((1, 4), (9, heads), (9, heads)))
    options = {"kv_layout": Layout.full(9), **GROUPED[case], "layout": Layout.full(1, start=8)}
    if case in ("padded", "alibi"):
        options["layout"] = BEFORE.slice(8, 9)
    out = attend(q, k, v, backend="sdpa", **options)
    assert seen[0][0] == (2, heads, 4 // heads, 8) and not seen[0][1]["enable_gqa"]
    torch.testing.assert_close(out, attend(q, k, v, backend="reference", **options), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("tokens, width", [(16, torch.float32), (200, torch.bfloat16)])
def test_short_rows_in_bf16_train_in_fp32_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, tokens: int, width: torch.dtype
) -> None:
    fused, seen = F.scaled_dot_product_attention, []

    def watched(q: torch.Tensor, *args: object, **options: object) -> torch.Tensor:
        seen.append((q.dtype, torch.is_autocast_enabled("cpu")))
        return fused(q, *args, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    q, k, v = (torch.randn(2, tokens, 2, 8, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    with torch.autocast("cpu", torch.bfloat16):
        out = attend(q, k, v, pattern=causal(), backend="sdpa")
        with torch.no_grad():
            attend(q, k, v, pattern=causal(), backend="sdpa")
    out.sum().backward()
    assert seen == [(width, width != torch.float32), (torch.bfloat16, True)]
    assert out.dtype == torch.bfloat16 and q.grad is not None and q.grad.dtype == torch.bfloat16
    exact = attend(q.detach().double(), k.detach().double(), v.detach().double(), pattern=causal(), backend="reference")
    assert (out.double() - exact).norm() <= 0.01 * exact.norm()
