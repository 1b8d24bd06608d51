"""PaLM (Chowdhery et al. 2022): a decoder with one key-value head, SwiGLU, and its two sublayers side by side."""

from __future__ import annotations

from typing import Any

from ...nn.attention.multi_head import Attention
from ...nn.layers.feedforward import FeedForward
from ...nn.layers.norm import LayerNorm
from ...nn.models.block import Block
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.initialization import LeCun
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import causal
from ...nn.positions.base import Position
from ...nn.positions.rotary import Rotary


def palm(
    *,
    vocab_size: int = 256000,
    d_model: int = 18432,
    n_layers: int = 118,
    n_heads: int = 48,
    n_kv_heads: int | None = 1,
    d_head: int = 256,
    d_ff: int | None = None,
    dropout: float = 0.0,
    position: Position | None = None,
    max_positions: int | None = 2048,
    head: bool = True,
) -> Transformer:
    """A decoder-only language model without biases (§2). `d_ff` is 4 · d_model by default.

    The table is drawn from N(0, 1) and shared with the output, whose states are therefore multiplied by 1/√d_model (§5).
    """
    norm = LayerNorm(bias=False)
    block = Block(
        attention=Attention(n_heads=n_heads, n_kv_heads=n_kv_heads, d_head=d_head, bias=False, pattern=causal()),
        feedforward=FeedForward(d_ff=d_ff or 4 * d_model, activation="silu", gated=True, bias=False),
        norm=norm,
        placement="parallel",
        shared_norm=True,
        dropout=dropout,
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        decoder=Stack(position=position or Rotary(), blocks=(block,) * n_layers, norm=norm),
        head=LanguageModel(scale="rsqrt") if head else None,
        initialization=LeCun(),
    )


SIZES: dict[str, dict[str, Any]] = {
    "palm-8b": {"d_model": 4096, "n_layers": 32, "n_heads": 16},
    "palm-62b": {"d_model": 8192, "n_layers": 64, "n_heads": 32},
    "palm-540b": {},
}

PRESETS = [(palm, SIZES)]
