"""Attention over BigBird's blocks: keys that are there several times, draws in training, and beside a bias of positions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.attention.bigbird import BlockSparseAttention, MultiHeadBlockSparseAttention
from qkv.nn.attention.mixer import Pass
from qkv.nn.attention.multi_head import Attention
from qkv.nn.patterns.bigbird import BigBird
from qkv.nn.positions.base import PositionModule, Widths
from qkv.nn.positions.bias import ALiBi

M, T = 12, 33
BLOCKS = BigBird(size=3, random=2, seed=4)


def made(**options: Any) -> MultiHeadBlockSparseAttention:
    module = BlockSparseAttention(n_heads=4, pattern=BLOCKS, **options).module(M).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    assert isinstance(module, MultiHeadBlockSparseAttention)
    return module


@pytest.mark.parametrize("training", [False, True])
def test_a_key_that_is_there_twice_is_a_key_twice(training: bool) -> None:
    module = made().train(training)
    x = torch.randn(2, T, M, dtype=torch.float64)
    q, k, v = (layer(x).unflatten(-1, (4, 3)) for layer in (module.q, module.k, module.v))
    counts = BLOCKS.replace(seed=4 if training else None).over(T, 4).counts.expand(4, -1, -1)  # type: ignore[attr-defined]
    rows = []
    for at in range(T):
        heads = []
        for head in range(4):
            times = counts[head, at // 3].repeat_interleave(3)
            keys, values = (t[:, :, head].repeat_interleave(times, 1) for t in (k, v))
            weights = torch.einsum("bd,bsd->bs", q[:, at, head], keys).mul(3**-0.5).softmax(-1)
            heads.append(torch.einsum("bs,bse->be", weights, values))
        rows.append(torch.cat(heads, -1))
    found = module(x, Pass.over(Layout.full(T), PositionModule()))
    torch.testing.assert_close(found, module.out(torch.stack(rows, 1)))


def test_blocks_are_drawn_in_training_and_fixed_in_evaluation() -> None:
    module, always = made(), made(draws="always")
    always.load_state_dict(module.state_dict())
    x, run = torch.randn(2, T, M, dtype=torch.float64), Pass.over(Layout.full(T), PositionModule())
    drawn, first = module.train()(x, run), module.eval()(x, run)
    assert not torch.allclose(drawn, first)
    torch.testing.assert_close(always.eval()(x, run), drawn)


def test_short_rows_are_plain_attention_and_positions_add_their_bias() -> None:
    module, plain = made(), Attention(n_heads=4).module(M).double()
    plain.load_state_dict(module.state_dict())
    x = torch.randn(2, T, M, dtype=torch.float64)
    run = Pass.over(Layout.full(27), ALiBi().module(Widths(M, 4, 3, None)))
    torch.testing.assert_close(module.eval()(x[:, :27], run), plain(x[:, :27], run))
    with_bias = Pass.over(Layout.full(T), ALiBi().module(Widths(M, 4, 3, None)))
    q, k, v = (layer(x).unflatten(-1, (4, 3)) for layer in (module.q, module.k, module.v))
    tokens = Layout.full(T)
    bias = with_bias.bias(tokens.queries(), tokens.keys()) + module.undrawn.over(T).log_times(  # type: ignore[misc, attr-defined]
        tokens.queries(), tokens.keys()
    )
    expected = attend(q, k, v, pattern=module.undrawn.over(T), bias=bias, backend="reference")
    torch.testing.assert_close(module(x, with_bias), module.out(expected.flatten(-2)))


def test_it_does_not_cross() -> None:
    with pytest.raises(ValueError, match="for cross-attention take attention"):
        BlockSparseAttention(n_heads=4).module(M, cross=True)
