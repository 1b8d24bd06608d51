"""Forward-mode derivatives equal reverse-mode ones or are refused: never 0 if an operator doesn't know them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from qkv.nn.attention.attend import attend
from qkv.nn.kernels.plain import in_forward_mode
from qkv.nn.layers.dropout import dropout
from qkv.nn.layers.grouped_linear import GroupedLinear
from qkv.nn.layers.losses import linear_cross_entropy
from qkv.nn.patterns.basic import causal, window
from qkv.nn.positions.base import Bias
from qkv.nn.positions.bias import T5Buckets


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


Q, K, V = (random(1, 70, 2, 8, seed=i) for i in range(3))
ENDS = torch.tensor([3, 5])


EXPERTS = GroupedLinear(2, 8, 4).double().requires_grad_(False)
EXPERTS.weight.copy_(random(2, 4, 8))


def likelihood(x: Tensor) -> Tensor:
    return linear_cross_entropy(x, random(11, 8), None, torch.arange(70)[None] % 11).loss


def biased(weight: Tensor) -> Tensor:
    return attend(Q, K, V, bias=Bias(T5Buckets(bidirectional=True), (weight,)))


WAYS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "queries": (lambda x: attend(x, K, V, pattern=causal() & window(9)), Q),
    "keys": (lambda x: attend(Q, x, V), K),
    "values": (lambda x: attend(Q, K, x, pattern=causal(), softcap=5.0), V),
    "bias": (biased, random(32, 2)),
    "reference": (lambda x: attend(x, x, x, backend="reference"), Q),
    "experts": (lambda x: EXPERTS(x, ENDS), random(6, 8)),
    "likelihood": (likelihood, random(1, 70, 8)),
    "dropout": (lambda x: dropout(x, 1e-9), Q),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_tangent_is_the_limit_of_differences(way: str) -> None:
    function, x = WAYS[way]
    tangent, step = random(*x.shape, seed=5), 1e-5
    expected = (function(x + step * tangent) - function(x - step * tangent)) / (2 * step)
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(torch.func.jvp(function, (x,), (tangent,))[1], expected, atol=1e-5, rtol=1e-5)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(function(forward_ad.make_dual(x, tangent))).tangent
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("backend", ["tiled", "sdpa", "capped", "flex", "flash"])
def test_backends_that_have_none_refuse_by_name(backend: str) -> None:
    with pytest.raises(ValueError, match=f"backend '{backend}' can't serve .* no forward-mode derivatives"):
        torch.func.jvp(lambda x: attend(x, K, V, backend=backend, softcap=5.0), (Q,), (Q,))


def test_only_what_carries_a_tangent_goes_forward() -> None:
    assert not in_forward_mode(Q, None)
    with forward_ad.dual_level():
        assert not in_forward_mode(Q)
        assert in_forward_mode(Q, forward_ad.make_dual(Q, Q))


def test_tangents_below_another_transform_are_seen() -> None:
    x = random(1, 5, 2, 4)

    def function(backend: str) -> Callable[[Tensor], Tensor]:
        return lambda x: attend(x, x, x, pattern=causal(), backend=backend).square().sum()

    expected = torch.autograd.functional.hessian(function("reference"), x)
    torch.testing.assert_close(torch.func.hessian(function("auto"))(x), expected)
    along = torch.func.jvp(torch.func.grad(function("auto")), (x,), (x,))[1]
    torch.testing.assert_close(along.flatten(), expected.reshape(40, 40) @ x.flatten())
