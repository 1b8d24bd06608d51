"""Strips: equal to the reference with its gradients, however many are taken at once, and after regrouping."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.attention.attend import attend
from qkv.core.layout import Layout
from qkv.kernels.cpu import block_sparse, tiled
from qkv.kernels.cpu.block_sparse import BlockSparse
from qkv.kernels.cpu.regrouped import Regrouped
from qkv.patterns.basic import (
    Pattern,
    causal,
    chunks,
    dilated,
    fixed,
    full,
    global_tokens,
    random_blocks,
    sinks,
    strided,
    window,
)

HEADS = 4
ROLES = (torch.arange(61) % 20 == 3).long()[None]

CASES: dict[str, dict[str, Any]] = {
    "window": {"pattern": causal() & window(9)},
    "both sides": {"pattern": window(6)},
    "longformer": {"pattern": window(5) | global_tokens(3)},
    "longformer by roles": {"pattern": window(5) | global_tokens(), "layout": Layout.full(61).with_roles(ROLES)},
    "sinks": {"pattern": causal() & (window(5) | sinks(2))},
    "outside": {"pattern": causal() & ~window(6)},
    "random": {"pattern": causal() & (window(4) | random_blocks(4, 2, seed=1))},
    "chunks": {"pattern": chunks(8)},
    "fixed": {"pattern": fixed(8, 2)},
    "packed": {"pattern": window(3), "layout": Layout.packed([[20, 15, 26]])},
    "padded": {"pattern": causal(), "layout": Layout.from_lengths([50], 61)},
    "late": {
        "pattern": causal() & window(9),
        "layout": Layout.full(61, start=40),
        "kv_layout": Layout.full(61, start=30),
    },
}
GAPS: dict[str, Pattern] = {
    "dilated": dilated(4, 3),
    "dilated past": causal() & dilated(4, 3),
    "dilated in a window": dilated(9, 3) & window(14, 8),
    "strided": strided(6),
    "strided past": causal() & strided(6),
    "far": causal() & strided(6, "far"),
    "far of few": strided(200, "far"),
}


@pytest.fixture(autouse=True)
def small_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strips and blocks of 4, so that 61 tokens make many, the last one short, and no rule is too dense."""
    monkeypatch.setattr(tiled, "_UNIT", 4)
    monkeypatch.setattr(tiled, "_SPARSE", 2.0)


def both_ways(backend: str, options: dict[str, Any], t: int = 61, n_kv_heads: int = HEADS) -> list[Tensor]:
    """Output, log-sum-exp and gradients."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tensors = [draw(2, t, n, width).requires_grad_() for n, width in ((HEADS, 8), (n_kv_heads, 8), (n_kv_heads, 5))]
    out, lse = attend(*tensors, return_lse=True, backend=backend, **options)
    value = (out * draw(2, t, HEADS, 5)).sum() + (lse.masked_fill(lse == -torch.inf, 0.0) * draw(2, HEADS, t)).sum()
    return [out.detach(), lse.detach(), *torch.autograd.grad(value, tensors)]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What served each call."""
    names: list[str] = []
    for kind in (BlockSparse, Regrouped):

        def spy(self: Any, forward: Any = kind.forward) -> Any:
            names.append(type(self).__name__)
            return forward(self)

        monkeypatch.setattr(kind, "forward", spy)
    return names


@pytest.mark.parametrize("at_once", [1, 200, 1 << 18])
@pytest.mark.parametrize("case", CASES)
def test_equals_the_reference_with_its_gradients(
    case: str, at_once: int, served: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_sparse, "_AT_ONCE", at_once)
    found, wanted = (both_ways(backend, CASES[case], n_kv_heads=2) for backend in ("tiled", "reference"))
    torch.testing.assert_close(found, wanted, atol=1e-9, rtol=1e-9)
    assert served == ["BlockSparse"]


@pytest.mark.parametrize("t", [1, 5, 60, 61])
@pytest.mark.parametrize("case", GAPS)
def test_rules_with_gaps_are_regrouped(case: str, t: int, served: list[str]) -> None:
    found, wanted = (both_ways(backend, {"pattern": GAPS[case]}, t) for backend in ("tiled", "reference"))
    torch.testing.assert_close(found, wanted, atol=1e-9, rtol=1e-9)
    assert served[0] == "Regrouped"


@pytest.mark.parametrize("pattern", GAPS.values(), ids=GAPS)
def test_the_parts_of_a_regrouped_rule_are_disjoint_and_together_the_rule(pattern: Pattern) -> None:
    n, seen = 50, torch.zeros(50, 50, dtype=torch.long)
    index = torch.arange(n)
    for d, rule in pattern.regroup() or ():
        same = index[:, None] % d == index % d
        seen += rule.mask(Layout(index[None] // d)) & same
    assert torch.equal(seen, pattern.mask(n).long())


def test_a_rule_that_can_not_be_thinned_is_not_regrouped() -> None:
    assert (dilated(4, 3) & sinks(5)).regroup() is None
    assert (dilated(4, 3) & strided(6)).regroup() is None
    assert (full() & window(4)).regroup() is None


def test_nan_behind_the_window_stays_there(served: list[str]) -> None:
    q, k, v = (torch.randn(1, 61, 2, 4) for _ in range(3))
    k[0, 9, 1] = float("inf")
    v[0, 17, 0] = float("nan")
    made, wanted = (attend(q, k, v, pattern=causal() & window(6), backend=b) for b in ("tiled", "reference"))
    torch.testing.assert_close(made, wanted, equal_nan=True)
    assert made[:, 23:].isfinite().all() and not served


def test_what_strips_have_no_way_for_goes_over_tiles(served: list[str]) -> None:
    q, k, v = (torch.randn(2, 61, 2, 4) for _ in range(3))
    for options in ({"softcap": 2.0}, {"layout": Layout.from_lengths([50, 61])}, {"bias": torch.randn(61, 61)}):
        found, wanted = (attend(q, k, v, pattern=window(5), backend=b, **options) for b in ("tiled", "reference"))
        torch.testing.assert_close(found, wanted)
    assert not served
