"""A matrix that steps share: the same gradients as autograd's, from one product."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.layers.shared_matrix import Shared


def loop(times: object, x: torch.Tensor, steps: int) -> torch.Tensor:
    out = []
    for t in range(steps):
        x = torch.tanh(times(x))  # type: ignore[operator]
        out.append(x * (t + 1))
    return torch.stack(out).sum()


@pytest.mark.parametrize("batched", [False, True])
def test_gradients_are_autograds(batched: bool) -> None:
    torch.manual_seed(0)
    shape, size = ((3, 4, 4), (3, 2, 4)) if batched else ((4, 4), (5, 4))
    matrix, x = torch.randn(shape, dtype=torch.float64, requires_grad=True), torch.randn(size, dtype=torch.float64)
    x.requires_grad_()
    wanted = torch.autograd.grad(loop(lambda h: h @ matrix, x, 6), (matrix, x))
    for _ in range(2):  # nothing is left over for the next step
        loop(Shared(matrix), x, 6).backward()
        torch.testing.assert_close((matrix.grad, x.grad), wanted)
        matrix.grad = x.grad = None


def test_what_reaches_no_loss_has_no_gradient() -> None:
    matrix = torch.randn(2, 2, requires_grad=True)
    other = torch.randn(3, 2, requires_grad=True)
    Shared(matrix)(other)
    other.sum().backward()
    assert matrix.grad is None


def test_it_is_plain_where_nothing_is_kept() -> None:
    matrix = torch.randn(2, 2)
    assert Shared(matrix).matrix is matrix
    with torch.no_grad():
        assert not Shared(matrix.requires_grad_()).deferred
    with torch.autocast("cpu", torch.bfloat16):
        shared = Shared(matrix)
        assert not shared.deferred and shared(torch.randn(3, 2)).dtype == torch.bfloat16
