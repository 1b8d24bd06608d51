"""Models of speech to be trained from scratch: an encoder of log-mel frames with a CTC head, and the Speech-Transformer of
Dong et al. 2018, whose decoder writes what the encoder hears."""

from __future__ import annotations

from typing import Any

from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.frames import Frames
from ...nn.layers.norm import LayerNorm
from ...nn.models.block import Block
from ...nn.models.heads.ctc import CTC
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.initialization import Glorot
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import causal
from ...nn.positions.absolute import Sinusoidal
from ...nn.positions.base import Position
from ...nn.positions.rotary import Rotary
from .factories import based_on


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
    stem: tuple[int, ...] = (),
) -> Transformer:
    """An encoder of log-mel frames, pre-norm, and a CTC head. One token stands for as many frames as the product of the
    `strides`. `stem` gives the widths of convolutions over bands and frames, see `Frames`."""
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
            embedding=Frames(mels=mels, frames=frames, strides=strides, dropout=dropout, stem=stem),
            position=position or Rotary(),
            blocks=(block,) * n_layers,
            norm=LayerNorm(),
        ),
        head=CTC(dropout=dropout),
        initialization=Glorot(),
    )


@based_on(speech_encoder)
def speech_transformer(
    *, decoder_layers: int | None = None, max_positions: int | None = None, **sizes: Any
) -> Transformer:
    """The encoder of `speech-encoder` and a decoder of tokens, both pre-norm. `position` is the encoder's; the decoder has
    sinusoidal positions. The decoder has as many layers as the encoder unless `decoder_layers` says otherwise."""
    spoken = speech_encoder(**sizes)
    encoder = spoken.output
    plain = encoder.blocks[0]
    block = plain.replace({"attention.pattern": causal(), "cross": plain.attention})
    decoder = Stack(
        embedding=Embedding(scale="sqrt", dropout=sizes["dropout"]),
        position=Sinusoidal(),
        blocks=(block,) * (decoder_layers or sizes["n_layers"]),
        norm=LayerNorm(),
    )
    return spoken.replace(decoder=decoder, head=LanguageModel(), max_positions=max_positions)


SIZES: dict[str, dict[str, Any]] = {"speech-encoder": {}}

PRESETS = [(speech_encoder, SIZES), (speech_transformer, {"speech-transformer": {}})]
