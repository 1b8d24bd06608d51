"""Gradients of weights in C++: products of any sizes beside float64's, the same with any number of threads."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.nn.kernels.native import weight_gradients

pytestmark = pytest.mark.skipif(
    not weight_gradients.ready(), reason="gradients of weights in C++ need AVX-512 and a compiler"
)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 1700), st.integers(1, 300), st.integers(1, 150), st.booleans(), st.booleans(), st.integers(0, 9))
def test_products_of_any_sizes(rows: int, outs: int, columns: int, adds: bool, sums: bool, beside: int) -> None:
    torch.manual_seed(0)
    d, x = torch.randn(rows, outs + beside)[:, :outs], torch.randn(rows, columns + beside)[:, beside:]
    before = torch.randn(outs, columns)
    into, total = before.clone(), torch.ones(outs) if sums else None
    weight_gradients.put(into, d, x, adds, total)
    wanted = d.double().T @ x.double() + (before if adds else 0)
    torch.testing.assert_close(into.double(), wanted, rtol=1e-5, atol=1e-4)
    if total is not None:
        torch.testing.assert_close(total.double(), 1 + d.double().sum(0), rtol=1e-5, atol=1e-4)


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    d, x = torch.randn(900, 500), torch.randn(900, 70)
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        into, sums = torch.empty(500, 70), torch.zeros(500)
        weight_gradients.put(into, d, x, sums=sums)
        found.append((into, sums))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_rows_may_lie_anywhere() -> None:
    d, x = torch.randn(40, 50).T, torch.randn(60, 50).T
    into = torch.empty(40, 60)
    weight_gradients.put(into, d, x)
    torch.testing.assert_close(into, d.T @ x, rtol=1e-5, atol=1e-5)
