"""Convolutional models by name: ByteNet's decoder (Kalchbrenner et al. 2016) and ConvS2S (Gehring et al. 2017).

Both are Transformer specs with convolutions in place of self-attention and without feed-forward layers. ConvS2S normalizes
the weights and halves the variance of residual sums; here each sublayer has a LayerNorm before it instead. ByteNet's
translator reads the source's representation at the same position, without attention; the preset is its language model.
"""

from __future__ import annotations

from typing import Any

from ...nn.attention.convolution import ByteNetConvolution, Convolution
from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.layers.feedforward import NoFeedForward
from ...nn.layers.norm import NoNorm
from ...nn.models.block import Block
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import causal
from ...nn.positions.absolute import Learned, NoPosition
from ...nn.positions.base import Position


def bytenet(
    *,
    vocab_size: int = 205,
    d_model: int = 1024,
    n_layers: int = 30,
    kernel: int = 3,
    d_inner: int | None = None,
    period: int = 5,
    dropout: float = 0.0,
    position: Position | None = None,
    max_positions: int | None = None,
) -> Transformer:
    """A causal language model of residual blocks with convolutions of `d_inner` channels (by default half of d_model). The
    dilation doubles `period` − 1 times and starts again: 1, 2, 4, 8, 16, 1, …"""
    blocks = tuple(
        Block(
            attention=ByteNetConvolution(kernel=kernel, dilation=2 ** (i % period), d_inner=d_inner, pattern=causal()),
            feedforward=NoFeedForward(),
            norm=NoNorm(),  # the convolution has its own
            dropout=dropout,
        )
        for i in range(n_layers)
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        decoder=Stack(embedding=Embedding(), position=position or NoPosition(), blocks=blocks),
        head=LanguageModel(tied=False, bias=True),
    )


def convs2s(
    *,
    vocab_size: int = 40000,
    d_model: int = 512,
    n_layers: int = 20,
    n_heads: int = 1,
    kernel: int = 3,
    dropout: float = 0.1,
    position: Position | None = None,
    encoder_layers: int | None = None,
    decoder_layers: int | None = None,
    max_positions: int | None = 1024,
) -> Transformer:
    """An encoder–decoder of gated convolutions, with attention to the source in each layer of the decoder; `n_heads` is of
    this attention."""
    embedding, position = Embedding(dropout=dropout), position or Learned()
    block = Block(attention=Convolution(kernel=kernel, gated=True), feedforward=NoFeedForward(), dropout=dropout)
    crossing = block.replace({"attention.pattern": causal(), "cross": Attention(n_heads=n_heads)})
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        encoder=Stack(embedding=embedding, position=position, blocks=(block,) * (encoder_layers or n_layers)),
        decoder=Stack(embedding=embedding, position=position, blocks=(crossing,) * (decoder_layers or n_layers)),
        head=LanguageModel(tied=False, bias=True),
    )


BYTENET: dict[str, dict[str, Any]] = {"bytenet": {}}
CONVS2S: dict[str, dict[str, Any]] = {"convs2s": {}}

PRESETS = [(bytenet, BYTENET), (convs2s, CONVS2S)]
