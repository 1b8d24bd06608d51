"""Calls of the block-sparse kernels: outputs, log-sum-exps and gradients for plans, and which tensors they take."""

from __future__ import annotations

import math

import pytest
import torch

from qkv.core.layout import Layout
from qkv.nn.kernels.cpu import block_plan
from qkv.nn.kernels.native import block_sparse
from qkv.nn.kernels.native.compiler import library
from qkv.nn.patterns.basic import causal, window

pytestmark = pytest.mark.skipif(
    library("block_sparse") is None, reason="there is no C++ compiler to build the kernels with"
)
T, D = 100, 16  # a block and a part of one


def plan() -> block_sparse.BlockPlan:
    made = block_plan.plan(causal() & window(30), Layout.full(T), Layout.full(T))
    assert made is not None
    return made


def test_outputs_and_gradients_are_those_of_a_masked_softmax() -> None:
    q, k, v, d_out = torch.randn(4, 1, T, 2, D, dtype=torch.float64)
    exact = [x.clone().requires_grad_() for x in (q, k, v)]
    scores = torch.einsum("bthd,bshd->bhts", exact[0], exact[1]) / math.sqrt(D)
    scores = scores.masked_fill(~(causal() & window(30)).mask(T), -math.inf)
    expected = torch.einsum("bhts,bshd->bthd", scores.softmax(-1), exact[2])
    expected.backward(d_out)
    q, k, v, d_out = (x.float() for x in (q, k, v, d_out))
    found = block_sparse.forward(q, k, v, (plan(),), D**-0.5)
    assert found is not None
    torch.testing.assert_close(found[0].double(), expected.detach(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found[1].double(), scores.logsumexp(-1).transpose(1, 2).detach(), atol=1e-5, rtol=1e-5)
    gradients = block_sparse.backward(q, k, v, *found, d_out, None, (plan(),), D**-0.5)
    assert gradients is not None
    for own, other in zip(gradients, exact, strict=True):
        torch.testing.assert_close(own.double(), other.grad, atol=1e-5, rtol=1e-5)


def test_a_key_that_is_not_finite_is_left_to_another_backend() -> None:
    q, k, v = torch.randn(3, 1, T, 2, D)
    k[0, 3, 0, 0] = math.nan
    assert block_sparse.forward(q, k, v, (plan(),), 1.0) is None


def test_widths_and_dtypes_that_the_kernels_take() -> None:
    def zeros(width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(1, 4, 1, width, dtype=dtype)

    assert block_sparse.takes(zeros(16), zeros(32)) and block_sparse.takes(zeros(16, torch.bfloat16), zeros(16))
    assert not block_sparse.takes(zeros(24), zeros(16)) and not block_sparse.takes(zeros(16), zeros(24))
    assert not block_sparse.takes(zeros(16, torch.float64), zeros(16, torch.float64))
    assert not block_sparse.takes(zeros(block_sparse.WIDEST + 16), zeros(16))
