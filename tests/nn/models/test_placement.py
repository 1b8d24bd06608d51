"""Norm placements by themselves: their norms, the constants of DeepNorm, and residual streams."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.layers.norm import LayerNorm, RMSNorm
from qkv.nn.models.placement import DeepNorm, Norms, NormsOf, Placement, Reversible, deepnorm_constants

NORM = LayerNorm()


@pytest.mark.parametrize(
    "kind, norms",
    [
        ("pre", NormsOf(before=NORM)),
        ("post", NormsOf(sum=NORM)),
        ("res-post", NormsOf(after=NORM)),
        ("sandwich", NormsOf(before=NORM, after=NORM)),
        ("parallel", NormsOf(before=NORM)),
        ("reversible", NormsOf(before=NORM)),
    ],
)
def test_each_placement_has_its_norms(kind: str, norms: NormsOf) -> None:
    assert Placement.from_dict({"kind": kind}).norms(NORM) == norms


def test_separate_norms() -> None:
    assert Norms(before=RMSNorm(), sum=NORM).norms(LayerNorm(eps=1.0)) == NormsOf(RMSNorm(), None, NORM)


def test_deepnorm_multiplies_the_residual() -> None:
    placement = DeepNorm(alpha=1.5)
    assert placement.skip == 1.5 and placement.norms(NORM) == NormsOf(sum=NORM)
    assert Placement.from_dict({"kind": "pre"}).skip == 1.0
    assert deepnorm_constants(3, 0) == {"encoder": (pytest.approx(6**0.25), pytest.approx(24**-0.25))}


def test_streams_begin_equal_and_end_as_their_mean() -> None:
    x, placement = torch.randn(2, 3, 4), Reversible()
    streams = placement.enter(x)
    assert streams.shape == (2, 2, 3, 4) and torch.equal(streams[0], x) and torch.equal(streams[1], x)
    torch.testing.assert_close(placement.leave(torch.stack([x, 3 * x])), 2 * x)
