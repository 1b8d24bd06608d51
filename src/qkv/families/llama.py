"""Llama 2 (Touvron et al. 2023): a pre-norm decoder with RMSNorm, rotary positions, SwiGLU and no biases."""

from __future__ import annotations

from typing import Any

from ..core.feedforward import FeedForward
from ..core.norm import RMSNorm
from ..core.patterns import causal
from ..core.positions import Position, Rotary
from ..model.attention import Attention
from ..model.block import Block
from ..model.heads import LanguageModel
from ..model.initial import Normal
from ..model.stack import Stack
from ..model.transformer import Transformer


def llama(
    *,
    vocab_size: int = 32000,
    d_model: int = 4096,
    n_layers: int = 32,
    n_heads: int = 32,
    n_kv_heads: int | None = None,
    d_ff: int = 11008,
    dropout: float = 0.0,
    tied: bool = False,
    position: Position | None = None,
    max_positions: int | None = 4096,
) -> Transformer:
    """A decoder-only language model in today's usual form."""
    norm = RMSNorm(eps=1e-5)
    block = Block(
        attention=Attention(n_heads=n_heads, n_kv_heads=n_kv_heads, bias=False, pattern=causal()),
        feedforward=FeedForward(d_ff=d_ff, activation="silu", gated=True, bias=False),
        norm=norm,
        dropout=dropout,
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        decoder=Stack(position=position or Rotary(), blocks=(block,) * n_layers, norm=norm),
        head=LanguageModel(tied=tied),
        initialization=Normal(scale_residual=False),
    )


SIZES: dict[str, dict[str, Any]] = {"llama": {}, "llama-2-7b": {}}
