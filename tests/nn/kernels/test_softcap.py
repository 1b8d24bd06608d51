"""Soft-capped attention: the reference's equal, and what it leaves to others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.patterns.basic import Pattern, causal, full, window

B, T, H, K, D = 2, 9, 4, 2, 8


class EveryOther(Pattern, kind="every-other-head"):
    """A rule that differs from head to head."""

    @property
    def per_head(self) -> bool:
        return True

    def allowed(self, q: Any, k: Any, head: Any = None) -> Any:
        return (k.position + head) % 2 == 0


CASES: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"pattern": causal()},
    "window": {"pattern": causal() & window(3)},
    "left": {"pattern": causal(), "layout": Layout.from_lengths([4, 9], side="left")},
    "packed": {"pattern": causal(), "layout": Layout.packed([[4, 5], [2, 7]], T)},
    "heads": {"pattern": EveryOther()},
    "blind": {"pattern": window(2) & ~window(2) | full() & causal() & ~window(1, 1)},
}


@pytest.mark.parametrize("kv_heads", [1, K, H])
@pytest.mark.parametrize("case", CASES)
def test_equals_the_reference_with_its_gradients(case: str, kv_heads: int) -> None:
    sizes = [(B, T, H, D), (B, T, kv_heads, D), (B, T, kv_heads, 5)]
    tensors = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]
    weight = torch.randn(B, T, H, 5, dtype=torch.float64)
    results = []
    for backend in ("capped", "reference"):
        out = attend(*tensors, backend=backend, softcap=0.7, **CASES[case])
        results.append((out.detach(), *torch.autograd.grad((out * weight).sum(), tensors)))
    torch.testing.assert_close(*results, atol=1e-12, rtol=1e-10)


def test_bf16_is_as_near_as_the_reference() -> None:
    q, k, v = (torch.randn(B, T, H, D) for _ in range(3))
    exact = attend(q, k, v, softcap=2.0, backend="reference")
    low = [x.bfloat16() for x in (q, k, v)]
    errors = [float((attend(*low, softcap=2.0, backend=b).float() - exact).norm()) for b in ("capped", "reference")]
    assert errors[0] < 2 * errors[1]


@pytest.mark.parametrize(
    "asked, why",
    [
        ({}, "soft-cap"),
        ({"softcap": 2.0, "bias": torch.zeros(T, T)}, "bias"),
        ({"softcap": 2.0, "dropout": 0.1}, "it has no dropout of attention weights"),
        ({"softcap": 2.0, "return_lse": True}, "log-sum-exp"),
    ],
)
def test_refusals_say_why(asked: dict[str, Any], why: str) -> None:
    q = torch.randn(B, T, H, D)
    with pytest.raises(ValueError, match=why):
        attend(q, q, q, backend="capped", **asked)
    attend(q, q, q, **asked)  # `auto` finds another


def test_compiles_into_one_graph() -> None:
    tensors = [torch.randn(B, T, n, D, dtype=torch.float64, requires_grad=True) for n in (H, K, K)]
    pattern = causal()

    def run(*given: torch.Tensor) -> torch.Tensor:
        return attend(*given, pattern=pattern, softcap=0.7, backend="capped")

    results = []
    for f in (run, torch.compile(run, backend="aot_eager", fullgraph=True)):
        out = f(*tensors)
        results.append((out.detach(), *torch.autograd.grad(out.square().sum(), tensors)))
    torch.testing.assert_close(*results, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("pattern", [full(), causal()], ids=str)
def test_second_derivatives_are_the_references(pattern: Pattern) -> None:
    given = [torch.randn(2, 9, heads, 8, dtype=torch.float64) for heads in (4, 2, 2)]

    def twice(backend: str) -> tuple[Tensor, ...]:
        inputs = [x.clone().requires_grad_() for x in given]
        out = attend(*inputs, softcap=2.0, pattern=pattern, backend=backend)
        grads = torch.autograd.grad(out.square().sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum((x.square().sum() for x in grads), torch.zeros(())), inputs)

    for found, wanted in zip(twice("capped"), twice("reference"), strict=True):
        torch.testing.assert_close(found, wanted)
