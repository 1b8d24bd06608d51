"""Captioner: a ViT reads a picture, and a decoder writes of it, or answers a question that it begins with.

The Transformer of Vaswani et al. 2017, pre-norm, with patches (Dosovitskiy et al. 2021) for its source.
"""

from __future__ import annotations

from typing import Any

from ..layers.embedding import Embedding
from ..layers.feedforward import Activation
from ..layers.patches import Size
from ..models.heads.text import LanguageModel
from ..models.initialization import Glorot
from ..models.stack import Stack
from ..models.transformer import Transformer
from ..patterns.basic import causal
from ..positions.absolute import Sinusoidal
from ..positions.base import Position
from .vit import vit


def captioner(
    *,
    vocab_size: int = 30000,
    image: Size = (224, 224),
    patch: Size = (16, 16),
    channels: int = 3,
    d_model: int = 384,
    n_layers: int = 6,
    n_heads: int = 6,
    d_ff: int = 1536,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    before: int = 0,
    position: Position | None = None,
    decoder_layers: int | None = None,
    max_positions: int | None = None,
) -> Transformer:
    """An encoder over patches, with `before` more tokens, and a decoder of tokens, both pre-norm; `position` is the
    decoder's."""
    seeing = vit(
        image=image,
        patch=patch,
        channels=channels,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        d_ff=d_ff,
        activation=activation,
        dropout=dropout,
        attention_dropout=attention_dropout,
        before=before,
        head=False,
    )
    assert seeing.encoder is not None
    block = seeing.encoder.blocks[0]
    writing = block.replace({"attention.pattern": causal(), "cross": block.attention})
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        encoder=seeing.encoder,
        decoder=Stack(
            embedding=Embedding(scale="sqrt", dropout=dropout),
            position=position or Sinusoidal(),
            blocks=(writing,) * (decoder_layers or n_layers),
            norm=seeing.encoder.norm,
        ),
        head=LanguageModel(),
        initialization=Glorot(),
    )


SIZES: dict[str, dict[str, Any]] = {"captioner": {}}
