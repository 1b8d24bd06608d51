"""Checks of models find parts that leak, misplace, miscount or are not trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import qkv
from qkv.core.layout import Layout
from qkv.nn.positions.base import PositionModule, Widths
from qkv.testing import Report, check


class LeakingModule(nn.Module):
    def forward(self, x: Tensor, run: Any, state: Any = None) -> Tensor:
        return x.flip(1)


class Leaking(qkv.Mixer, kind="mutant-leaking"):
    """Each token reads its mirror image, which may come later."""

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        return LeakingModule()


class IndexedModule(PositionModule):
    def embed(self, layout: Layout) -> Tensor:
        return torch.sin(torch.arange(layout.shape[1])[None, :, None] * torch.linspace(0.1, 1, 32, dtype=torch.float64))


class Indexed(qkv.Position, kind="mutant-indexed"):
    """Counts from the first index of the tensor, whatever the position of the token is."""

    def module(self, widths: Widths) -> PositionModule:
        return IndexedModule()


class Miscounted(qkv.RMSNorm, kind="mutant-miscounted"):
    """Its cost has a bias that its module lacks."""

    def cost(self, d: int, tokens: int = 0) -> qkv.Cost:
        return qkv.Cost(2 * d, 4 * d * tokens)


class Detached(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight.detach()


class Untrained(qkv.Norm, kind="mutant-untrained"):
    """A weight that no gradient reaches."""

    def module(self, d: int) -> nn.Module:
        return Detached(d)

    def cost(self, d: int, tokens: int = 0) -> qkv.Cost:
        return qkv.Cost(d)


class InFloat64(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x.double()


class Wide(qkv.Norm, kind="mutant-wide"):
    """Its output is in fp64 whatever its input."""

    def module(self, d: int) -> nn.Module:
        return InFloat64(d)

    def cost(self, d: int, tokens: int = 0) -> qkv.Cost:
        return qkv.Cost(d)


class SummedInBF16(nn.Module):
    """A sum of many squares kept in x's dtype, term by term: in bf16 it stops growing."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        total = torch.full_like(x[..., :1], 300.0)
        for square in x.square().unbind(-1):
            total = total + square.clamp(max=0.9)[..., None]
        return self.weight * (x * (total - 300.0).rsqrt().nan_to_num(0.0, 0.0, 0.0))


class Coarse(qkv.Norm, kind="mutant-coarse"):
    """It sums in the dtype of its input."""

    def module(self, d: int) -> nn.Module:
        return SummedInBF16(d)

    def cost(self, d: int, tokens: int = 0) -> qkv.Cost:
        return qkv.Cost(d, 4 * d * tokens)


def outcomes(report: Report) -> dict[str, str]:
    return {check.name: check.outcome for check in report.checks}


RIGHT = [
    qkv.causal() & qkv.window(3),
    qkv.full(),
    qkv.Rotary(),
    qkv.ALiBi(),
    qkv.Sinusoidal(),
    qkv.LayerNorm(),
    qkv.FeedForward(d_ff=20),
    qkv.LinearAttention(n_heads=2),
    qkv.LanguageModel(tied=False),
    qkv.DeepNorm(alpha=1.3),
    qkv.preset("gpt2", n_layers=1, d_model=16, n_heads=2, d_ff=16, vocab_size=11),
]


@pytest.mark.parametrize("part", RIGHT, ids=lambda part: part.kind)
def test_own_parts_pass(part: qkv.Spec, compiled: bool) -> None:
    report = check(part)
    report.raise_for_failures()
    assert outcomes(report)["batched = alone"] == outcomes(report)["packed = separate"] == "passed"


@pytest.mark.parametrize(
    "part, failures",
    [
        (Leaking(), {"no later tokens", "batched = alone", "packed = separate", "cached = one pass", "generates"}),
        (Indexed(), {"batched = alone", "packed = separate", "cached = one pass", "generates"}),
        (Miscounted(), {"parameter count"}),
        (Untrained(), {"gradients"}),
        (Coarse(), {"runs in bf16"}),
        (Wide(), {"fp32 = fp64", "generates", "runs in bf16", "compiled = eager"}),
    ],
    ids=lambda value: value.kind if isinstance(value, qkv.Spec) else "",
)
def test_wrong_parts_fail(part: qkv.Spec, failures: set[str], compiled: bool) -> None:
    report = check(part)
    assert {failure.name for failure in report.failures} == failures - (set() if compiled else {"compiled = eager"}), (
        report
    )


def test_a_compiled_model_has_to_give_the_same() -> None:
    assert [outcomes(check(part))["compiled = eager"] for part in (qkv.RMSNorm(), Wide())] == ["passed", "failed"]


def test_what_cannot_be_run_is_not_checked() -> None:
    report = check(qkv.preset("gpt2"))
    assert outcomes(report)["parameter count"] == "passed" and outcomes(report)["gradients"] == "not checked"
    report = check(qkv.preset("vit-base-16", d_model=16, n_layers=1, n_heads=2, d_ff=16, image=(16, 16), patch=(8, 8)))
    assert {check.reason for check in report.checks if check.outcome == "not checked"} == {
        "only models of token ids are run"
    }
