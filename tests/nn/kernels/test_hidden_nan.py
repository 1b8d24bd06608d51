"""What a query does not see is kept out of its result, and gradients are of what it sees."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.kernels.hidden_nan import confined, may_have_nan


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_value_that_is_no_finite_number_is_found(dtype: torch.dtype) -> None:
    x = torch.full((3, 200), 300.0, dtype=dtype)  # in float16, the sum itself would overflow
    assert not may_have_nan(x)
    for value in (float("nan"), float("inf"), -float("inf")):
        x[1, 7] = value
        assert may_have_nan(x)


def test_devices_and_transformations_that_would_wait_are_not_asked() -> None:
    assert not may_have_nan(torch.full((2,), float("nan"), device="meta"))
    assert torch.func.vmap(lambda x: x * (2.0 if may_have_nan(x) else 1.0))(torch.tensor([1.0, 2.0])).tolist() == [1, 2]


def test_only_queries_that_see_it_get_nan() -> None:
    clean = torch.tensor([[1.0], [2.0]], requires_grad=True)
    seen = torch.tensor([[False], [True]])
    found = confined(torch.full((2, 1), float("nan")), clean, seen)
    assert found[0].item() == 1 and found[1].isnan().all()
    found.sum().backward()
    assert clean.grad is not None and clean.grad.tolist() == [[1.0], [1.0]]
