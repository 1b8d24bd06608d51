"""Segmenter (Strudel et al. 2021): ViT, and a small Transformer over the patches' states and one token for each class."""

from __future__ import annotations

from typing import Any

from ..layers.feedforward import Activation
from ..layers.patches import GridPosition, Size, States
from ..models.heads.vision import MaskTokens
from ..models.stack import Stack
from ..models.transformer import Transformer
from ..positions.base import Position
from .vit import vit


def segmenter(
    *,
    image: Size = (512, 512),
    patch: Size = (16, 16),
    channels: int = 3,
    d_model: int = 384,
    n_layers: int = 12,
    n_heads: int = 6,
    d_ff: int = 1536,
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    drop_path: float = 0.1,
    eps: float = 1e-5,
    position: Position | None = None,
    labels: int = 150,
    decoder_layers: int = 2,
    decoder_dropout: float = 0.1,
    finer: int = 1,
    scale: float = 1.0,
) -> Transformer:
    """A mask of an image for each of `labels` classes. The decoder's layers are the encoder's, without positions.

    finer, scale: see `MaskTokens`; more than 1 makes a small model on little data learn sooner than the paper's does.
    """
    spec = vit(
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
        eps=eps,
        position=position or GridPosition(interpolation="bilinear"),
        head=False,
    )
    dropped = dict.fromkeys(("dropout", "attention.dropout", "feedforward.dropout"), decoder_dropout)
    block = spec.output.blocks[0].replace(dropped)
    decoder = Stack(embedding=States(), blocks=(block,) * decoder_layers, norm=spec.output.norm)
    masks = MaskTokens(labels=labels, width=d_model, decoder=decoder, finer=finer, scale=scale)
    return spec.replace({"head": masks, "encoder.drop_path": drop_path})


SIZES: dict[str, dict[str, Any]] = {
    "segmenter-tiny": {"d_model": 192, "n_heads": 3, "d_ff": 768},
    "segmenter-small": {},
    "segmenter-base": {"d_model": 768, "n_heads": 12, "d_ff": 3072},
}
