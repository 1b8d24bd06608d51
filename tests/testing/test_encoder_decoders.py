"""Checks of encoder–decoders pass for qkv's own and find parts that leak, read padding or are not trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import qkv
from qkv.nn.models.base import ModelSpec
from qkv.testing import Report, check

SIZES = {"vocab_size": 17, "d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 24}
RECURRENT = {"vocab_size": 17, "d_e": 8, "d_h": 8, "d_s": 8}


def outcomes(report: Report) -> dict[str, str]:
    return {check.name: check.outcome for check in report.checks}


def model(**changes: Any) -> ModelSpec:
    spec = qkv.preset("transformer", **SIZES, max_positions=32)
    return spec.replace({path.replace("__", "."): value for path, value in changes.items()})


OWN = {
    "transformer": model(),
    "bart": qkv.preset("bart-base", **SIZES, max_positions=32),
    "t5": qkv.preset("t5-small", **SIZES, d_head=4),
    "recurrent": qkv.preset("seq2seq", **RECURRENT),
}


@pytest.mark.parametrize("name", OWN)
def test_own_models_pass(name: str, compiled: bool) -> None:
    report = check(OWN[name])
    report.raise_for_failures()
    for one in ("batched = alone", "no later tokens", "cached = one pass", "gradients"):
        assert outcomes(report)[one] == "passed", report


class Mirror(nn.Module):
    def forward(self, x: Tensor, run: Any, state: Any = None) -> Tensor:
        return x.flip(1)


class Mirroring(qkv.Mixer, kind="mutant-mirroring"):
    """Each token reads its mirror image, which may be padding or come later."""

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        return Mirror()


class Detached(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight.detach()


class Frozen(qkv.Norm, kind="mutant-frozen"):
    """A weight that no gradient reaches."""

    def module(self, d: int) -> nn.Module:
        return Detached(d)

    def cost(self, d: int, tokens: int = 0) -> qkv.Cost:
        return qkv.Cost(d)


@pytest.mark.parametrize(
    "spec, failures",
    [
        (model(encoder__blocks__0__attention=Mirroring()), {"batched = alone", "generates"}),
        (
            model(decoder__blocks__0__attention=Mirroring()),
            {"batched = alone", "no later tokens", "cached = one pass"},
        ),
        (model(**{"decoder__blocks__*__norm": Frozen()}), {"gradients"}),
    ],
    ids=["encoder reads padding", "decoder leaks", "untrained norm"],
)
def test_wrong_parts_fail(spec: ModelSpec, failures: set[str], compiled: bool) -> None:
    report = check(spec)
    assert {failure.name for failure in report.failures} == failures, report
