"""Speech encoder: a pre-norm encoder over log-mel frames with a CTC head, to be trained from scratch."""

from __future__ import annotations

from typing import Any

from ...nn.attention.multi_head import Attention
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.frames import Frames
from ...nn.layers.norm import LayerNorm
from ...nn.models.block import Block
from ...nn.models.heads.ctc import CTC
from ...nn.models.initialization import Glorot
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.positions.base import Position
from ...nn.positions.rotary import Rotary


def speech_encoder(
    *,
    vocab_size: int = 32,
    mels: int = 80,
    frames: int = 3000,
    strides: tuple[int, ...] = (2, 2),
    d_model: int = 256,
    n_layers: int = 6,
    n_heads: int = 4,
    d_ff: int = 1024,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    position: Position | None = None,
) -> Transformer:
    """An encoder of log-mel frames, pre-norm, and a CTC head. One token stands for as many frames as the product of the
    `strides`."""
    block = Block(
        attention=Attention(n_heads=n_heads, bias=True, out_bias=True),
        feedforward=FeedForward(d_ff=d_ff, activation=activation),
        norm=LayerNorm(),
        dropout=dropout,
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        encoder=Stack(
            embedding=Frames(mels=mels, frames=frames, strides=strides, dropout=dropout),
            position=position or Rotary(),
            blocks=(block,) * n_layers,
            norm=LayerNorm(),
        ),
        head=CTC(dropout=dropout),
        initialization=Glorot(),
    )


SIZES: dict[str, dict[str, Any]] = {"speech-encoder": {}}

PRESETS = [(speech_encoder, SIZES)]
