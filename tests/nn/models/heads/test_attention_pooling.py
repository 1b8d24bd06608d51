"""Attention pooling: SigLIP's head of transformers with the same weights, padding, and parameters."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import qkv
from qkv.core.layout import Layout
from qkv.nn.layers.norm import LayerNorm
from qkv.nn.models.heads.attention_pooling import AttentionPooling

M = 12
SPEC = AttentionPooling(n_heads=3, d_ff=20, activation="gelu-tanh", norm=LayerNorm(eps=1e-3))


def stirred(module: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.double()


@pytest.mark.slow
def test_it_is_siglips_head_of_transformers() -> None:
    siglip = pytest.importorskip("transformers.models.siglip.modeling_siglip")
    config = siglip.SiglipVisionConfig(
        hidden_size=M, num_attention_heads=3, intermediate_size=20, layer_norm_eps=1e-3, hidden_act="gelu_pytorch_tanh"
    )
    theirs, ours = stirred(siglip.SiglipMultiheadAttentionPoolingHead(config)), SPEC.module(M).double()
    named = dict(theirs.state_dict())
    q, k, v = named["attention.in_proj_weight"].split(M)
    bq, bk, bv = named["attention.in_proj_bias"].split(M)
    state = {"query": named["probe"].reshape(1, M), "q.weight": q, "k.weight": k, "v.weight": v}
    state |= {"q.bias": bq, "k.bias": bk, "v.bias": bv}
    for one, other in (("out", "attention.out_proj"), ("norm", "layernorm")):
        state |= {f"{one}.{end}": named[f"{other}.{end}"] for end in ("weight", "bias")}
    for one, other in (("up", "fc1"), ("down", "fc2")):
        state |= {f"feedforward.{one}.{end}": named[f"mlp.{other}.{end}"] for end in ("weight", "bias")}
    ours.load_state_dict(state)
    hidden = torch.randn(4, 7, M, dtype=torch.float64, requires_grad=True)
    expected, found = theirs(hidden), ours(hidden, Layout.full(7))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    wanted, made = (torch.autograd.grad(out.square().sum(), hidden)[0] for out in (expected, found))
    torch.testing.assert_close(made, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_not_pooled(side: str) -> None:
    head, hidden = stirred(SPEC.module(M)), torch.randn(3, 5, M, dtype=torch.float64)
    pooled = head(hidden, Layout.from_lengths([2, 5, 1], side=side))  # type: ignore[arg-type]
    for row, n in enumerate([2, 5, 1]):
        real = hidden[row, :n] if side == "right" else hidden[row, 5 - n :]
        torch.testing.assert_close(pooled[row], head(real[None], Layout.full(n))[0], rtol=1e-10, atol=1e-12)


def test_its_parameters_are_counted_and_drawn_by_the_seed() -> None:
    assert SPEC.cost(M).parameters == sum(p.numel() for p in SPEC.module(M).parameters())
    tower = qkv.preset(
        "siglip-base-16", image=(8, 8), patch=(4, 4), vocab_size=9, d_model=8, n_heads=2, n_layers=1, d_ff=8
    )
    one, same, other = (qkv.build(tower, seed=seed).image.head.query for seed in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other) and one.count_nonzero() == 8


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(ValueError, match=r"head\.n_heads=3 does not divide the width of the states, 10"):
        SPEC.module(10)
