"""Linear attention by products: what qkv's recurrent computation gives, at once and token by token."""

from __future__ import annotations

import pytest
import torch

from qkv.core.layout import Layout
from qkv.nn.attention.feature_maps import Features
from qkv.nn.attention.linear import LinearState, linear_attention
from qkv.runs.export.linear import by_products

B, T, H, K, R, E = 2, 7, 4, 2, 3, 5


def features(heads: int, logs: bool) -> Features:
    log = torch.randn(B, T, heads, dtype=torch.float64) if logs else None
    return Features(torch.rand(B, T, heads, R, dtype=torch.float64) + 0.1, log)


@pytest.mark.parametrize("logs", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_products_give_what_sums_give(causal: bool, logs: bool) -> None:
    q, k, v = features(H, logs), features(K, logs), torch.randn(B, T, K, E, dtype=torch.float64)
    layout = Layout.from_mask(torch.tensor([[1] * T, [0] * 2 + [1] * (T - 2)]))
    found, expected = (attend(q, k, v, layout, causal) for attend in (by_products, linear_attention))
    torch.testing.assert_close(found[layout.valid.expand(B, T)], expected[layout.valid.expand(B, T)])


@pytest.mark.parametrize("logs", [False, True])
def test_steps_continue_the_sums_of_the_tokens_before(logs: bool) -> None:
    q, k, v = features(H, logs), features(K, logs), torch.randn(B, T, K, E, dtype=torch.float64)
    whole = by_products(q, k, v, Layout.full(T), True)
    state, parts = LinearState(), []
    for start, stop in ((0, 3), (3, 4), (4, T)):
        cut = [Features(x.values[:, start:stop], None if x.log is None else x.log[:, start:stop]) for x in (q, k)]
        layout = Layout(torch.arange(start, stop)[None])
        parts.append(by_products(*cut, v[:, start:stop], layout, True, state))
    torch.testing.assert_close(torch.cat(parts, 1), whole)
