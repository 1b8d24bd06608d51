"""The Transformer of *Attention Is All You Need* (Vaswani et al. 2017): encoder and decoder, post-norm, sinusoids."""

from __future__ import annotations

from typing import Any, Literal

from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.norm import LayerNorm, NoNorm
from ...nn.models.block import Block
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.initialization import DeepNormGlorot, Glorot
from ...nn.models.placement import DeepNorm, deepnorm_constants
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import causal
from ...nn.positions.absolute import Sinusoidal
from ...nn.positions.base import Position


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
    placement: Literal["pre", "post", "sandwich", "res-post", "deepnorm"] = "post",
    position: Position | None = None,
    encoder_layers: int | None = None,
    decoder_layers: int | None = None,
    max_positions: int | None = None,
) -> Transformer:
    """An encoder–decoder with one shared table for source, target and output. Stacks whose blocks leave sums without a norm
    end in one. `placement="deepnorm"` sets the initialization too."""
    position = position or Sinusoidal()
    norm = NoNorm() if placement in ("post", "deepnorm") else LayerNorm()
    depths = {"encoder_layers": encoder_layers or n_layers, "decoder_layers": decoder_layers or n_layers}
    encoder, decoder = (
        DeepNorm(alpha=alpha) if placement == "deepnorm" else placement
        for alpha, _ in deepnorm_constants(**depths).values()
    )
    embedding = Embedding(scale="sqrt", dropout=dropout)
    attention = Attention(n_heads=n_heads, dropout=attention_dropout)
    block = Block(
        attention=attention,
        feedforward=FeedForward(d_ff=d_ff, activation=activation),
        placement=encoder,
        dropout=dropout,
    )
    crossing = block.replace({"attention.pattern": causal(), "cross": attention, "placement": decoder})
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        encoder=Stack(embedding=embedding, position=position, blocks=(block,) * depths["encoder_layers"], norm=norm),
        decoder=Stack(embedding=embedding, position=position, blocks=(crossing,) * depths["decoder_layers"], norm=norm),
        head=LanguageModel(),
        initialization=DeepNormGlorot(**depths) if placement == "deepnorm" else Glorot(),
    )


SIZES: dict[str, dict[str, Any]] = {
    "transformer": {},
    "transformer-base": {},
    "transformer-big": {"d_model": 1024, "n_heads": 16, "d_ff": 4096, "dropout": 0.3},
}

PRESETS = [(transformer, SIZES)]
