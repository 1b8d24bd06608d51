"""The Transformer of *Attention Is All You Need* (Vaswani et al. 2017): encoder and decoder, post-norm, sinusoids."""

from __future__ import annotations

from typing import Any, Literal

from ..attention.multi_head import Attention
from ..layers.embedding import Embedding
from ..layers.feedforward import Activation, FeedForward
from ..layers.norm import LayerNorm, NoNorm
from ..models.block import Block
from ..models.heads.text import LanguageModel
from ..models.initialization import Glorot
from ..models.stack import Stack
from ..models.transformer import Transformer
from ..patterns.basic import causal
from ..positions.absolute import Sinusoidal
from ..positions.base import Position


def transformer(
    *,
    vocab_size: int = 37000,
    d_model: int = 512,
    n_layers: int = 6,
    n_heads: int = 8,
    d_ff: int = 2048,
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    activation: Activation = "relu",
    placement: Literal["pre", "post", "sandwich"] = "post",
    position: Position | None = None,
    encoder_layers: int | None = None,
    decoder_layers: int | None = None,
    max_positions: int | None = None,
) -> Transformer:
    """An encoder–decoder with one shared table for source, target and output. Pre-norm stacks end in a norm."""
    position = position or Sinusoidal()
    norm = LayerNorm() if placement in ("pre", "sandwich") else NoNorm()
    embedding = Embedding(scale="sqrt", dropout=dropout)
    attention = Attention(n_heads=n_heads, dropout=attention_dropout)
    block = Block(
        attention=attention,
        feedforward=FeedForward(d_ff=d_ff, activation=activation),
        placement=placement,
        dropout=dropout,
    )
    crossing = block.replace({"attention.pattern": causal(), "cross": attention})
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        encoder=Stack(
            embedding=embedding, position=position, blocks=(block,) * (encoder_layers or n_layers), norm=norm
        ),
        decoder=Stack(
            embedding=embedding, position=position, blocks=(crossing,) * (decoder_layers or n_layers), norm=norm
        ),
        head=LanguageModel(),
        initialization=Glorot(),
    )


SIZES: dict[str, dict[str, Any]] = {
    "transformer": {},
    "transformer-base": {},
    "transformer-big": {"d_model": 1024, "n_heads": 16, "d_ff": 4096, "dropout": 0.3},
}
