"""The reference: its weights, and NaN that stays where it is."""

from __future__ import annotations

import torch

from qkv.core.layout import Layout
from qkv.nn.attention import tap
from qkv.nn.attention.attend import attend
from qkv.nn.kernels import reference
from qkv.nn.kernels.request import Request
from qkv.nn.patterns.basic import causal, window


def request_of(**options: object) -> Request:
    q, k, v = (torch.randn(2, 6, 4, 8) for _ in range(3))
    with tap.record_attention() as requests:
        attend(q, k, v, backend="reference", **options)  # type: ignore[call-overload]
    return requests[0]


def test_weights_are_a_distribution_over_what_is_allowed() -> None:
    request = request_of(pattern=causal() & window(3))
    made = reference.weights(request, request.mask())
    assert made.shape == (2, 4, 6, 6)
    torch.testing.assert_close(made.sum(-1), torch.ones(2, 4, 6))
    allowed = (causal() & window(3)).mask(6)
    assert (made[:, :, ~allowed] == 0).all() and (made[:, :, allowed] > 0).all()


def test_weights_of_a_row_that_sees_nothing_are_zero() -> None:
    request = request_of(pattern=causal() & ~window(2))
    made = reference.weights(request, request.mask())
    torch.testing.assert_close(made.sum(-1), torch.tensor([0.0, 0, 1, 1, 1, 1]).expand(2, 4, 6))


def test_output_is_weights_times_values() -> None:
    request = request_of(layout=Layout.from_lengths([4, 6]))
    out = reference.run(request)
    assert isinstance(out, torch.Tensor)
    made = reference.weights(request, request.mask())
    torch.testing.assert_close(out, torch.einsum("bhts,bshe->bthe", made, request.v))


def test_nan_reaches_the_queries_that_see_it_and_no_others() -> None:
    q, k, v = (torch.randn(1, 6, 2, 4, requires_grad=True) for _ in range(3))
    poisoned = v.detach().clone()
    poisoned[0, 3, 1] = float("nan")
    clean = attend(q, k, v, pattern=causal(), backend="reference")
    out = attend(q, k, poisoned, pattern=causal(), backend="reference")
    assert out[0, 3:, 1].isnan().all()
    torch.testing.assert_close(out[0, :3], clean[0, :3])
    torch.testing.assert_close(out[0, :, 0], clean[0, :, 0])
    out[0, :3].sum().backward()
    assert q.grad is not None and q.grad.isfinite().all()


def test_scores_are_fp32_for_half_precision() -> None:
    q, k = (
        torch.full((1, 1, 1, 64), 30.0).half(),
        torch.full((1, 2, 1, 64), 40.0).half(),
    )  # the score is past fp16's range
    k[:, 1] = 39.0
    out = attend(q, k, torch.tensor([1.0, 2.0]).half()[None, :, None, None], scale=1.0, backend="reference")
    assert out.item() == 1.0 and out.dtype == torch.float16
