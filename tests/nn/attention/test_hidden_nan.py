"""NaN and infinities of a token reach only the queries that see it, in the mixers that don't go through `attend`."""

from __future__ import annotations

import math

import pytest
import torch

import qkv
from qkv.core.layout import Layout
from qkv.nn.attention.feature_maps import Favor, Relu
from qkv.nn.attention.linear import LinearAttention
from qkv.nn.attention.lsh import LSHAttention
from qkv.nn.attention.mixer import Mixer, Pass
from qkv.nn.attention.performer import Performer
from qkv.nn.positions.base import PositionModule

MIXERS: dict[str, Mixer] = {
    "elu1": LinearAttention(n_heads=2),
    "relu": LinearAttention(n_heads=2, features=Relu()),
    "performer": Performer(n_heads=2, features=Favor(n_features=16)),
    "lsh": LSHAttention(n_heads=2, chunk=4, buckets=4, rounds=3),
}
AT = 7
DOCUMENTS = Layout.packed([[5, 6]])  # token 7 is in the second


def outputs(mixer: Mixer, x: torch.Tensor, layout: Layout) -> torch.Tensor:
    torch.manual_seed(3)
    layer = mixer.module(8).eval().double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    torch.manual_seed(4)
    return layer(x, Pass.over(layout, PositionModule()))


@pytest.mark.parametrize("fill", [math.nan, math.inf])
@pytest.mark.parametrize("name", MIXERS)
def test_a_later_token_reaches_no_earlier_query(name: str, fill: float) -> None:
    causal = MIXERS[name].replace({"pattern": qkv.causal() & qkv.documents()})
    x = torch.randn(1, 11, 8, dtype=torch.float64)
    clean, spoilt = x.clone(), x.clone()
    clean[:, AT], spoilt[:, AT] = 0.0, fill
    found = outputs(causal, spoilt, Layout.full(11))
    assert found[:, :AT].isfinite().all() and not found[:, AT].isfinite().any()
    if name != "lsh":  # in which a token that is sorted elsewhere changes who is in whose chunk
        torch.testing.assert_close(found[:, :AT], outputs(causal, clean, Layout.full(11))[:, :AT])


@pytest.mark.parametrize("name", MIXERS)
def test_another_document_is_not_reached(name: str) -> None:
    full = MIXERS[name].replace({"pattern": qkv.full()})
    x = torch.randn(1, 11, 8, dtype=torch.float64)
    clean, spoilt = x.clone(), x.clone()
    clean[:, AT], spoilt[:, AT] = 0.0, math.nan
    found = outputs(full, spoilt, DOCUMENTS)
    torch.testing.assert_close(found[:, :5], outputs(full, clean, DOCUMENTS)[:, :5])
    assert found[:, AT].isnan().all()


def test_gradients_of_what_is_not_reached_are_finite() -> None:
    x = torch.randn(1, 11, 8, dtype=torch.float64)
    x[:, AT] = math.nan
    x.requires_grad_()
    causal = MIXERS["elu1"].replace({"pattern": qkv.causal()})
    outputs(causal, x, Layout.full(11))[:, :AT].sum().backward()
    assert x.grad is not None and x.grad[:, :AT].isfinite().all()
