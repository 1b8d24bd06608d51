"""GPT-2 (Radford et al. 2019): a pre-norm decoder with learned positions and a tied head."""

from __future__ import annotations

from typing import Any

from ..core.embedding import Embedding
from ..core.feedforward import FeedForward
from ..core.norm import LayerNorm
from ..core.patterns import causal
from ..core.positions import Learned, Position
from ..model.attention import Attention
from ..model.block import Block
from ..model.heads import LanguageModel
from ..model.initial import Normal
from ..model.stack import Stack
from ..model.transformer import Transformer


def gpt(
    *,
    vocab_size: int = 50257,
    d_model: int = 768,
    n_layers: int = 12,
    n_heads: int = 12,
    d_ff: int | None = None,
    dropout: float = 0.1,
    attention_dropout: float | None = None,
    bias: bool = True,
    position: Position | None = None,
    max_positions: int = 1024,
) -> Transformer:
    """A decoder-only language model; d_ff is 4 · d_model by default, attention dropout as the rest."""
    block = Block(
        attention=Attention(
            n_heads=n_heads,
            bias=bias,
            pattern=causal(),
            dropout=dropout if attention_dropout is None else attention_dropout,
        ),
        feedforward=FeedForward(d_ff=d_ff or 4 * d_model, activation="gelu-tanh", bias=bias),
        norm=LayerNorm(bias=bias),
        dropout=dropout,
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        decoder=Stack(
            embedding=Embedding(dropout=dropout),
            position=position or Learned(),
            blocks=(block,) * n_layers,
            norm=LayerNorm(bias=bias),
        ),
        head=LanguageModel(),
        initialization=Normal(),
    )


SIZES: dict[str, dict[str, Any]] = {
    "gpt": {},
    "gpt2": {},
    "gpt2-medium": {"d_model": 1024, "n_layers": 24, "n_heads": 16},
    "gpt2-large": {"d_model": 1280, "n_layers": 36, "n_heads": 20},
    "gpt2-xl": {"d_model": 1600, "n_layers": 48, "n_heads": 25},
}
