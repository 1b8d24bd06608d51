"""Segmenter (Strudel et al. 2021): ViT, and a small Transformer over the patches' states and one token for each class."""

from __future__ import annotations

from typing import Any

from ...nn.layers.patches import GridPosition, States
from ...nn.models.heads.vision import MaskTokens
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from .factories import based_on
from .vit import vit


@based_on(
    vit,
    without=("attention_bias", "before", "after", "stem", "head", "distilled", "pooler"),
    image=(512, 512),
    d_model=384,
    n_heads=6,
    d_ff=1536,
    eps=1e-5,
    labels=150,
)
def segmenter(
    *,
    drop_path: float = 0.1,
    decoder_layers: int = 2,
    decoder_dropout: float = 0.1,
    finer: int = 1,
    scale: float = 1.0,
    **sizes: Any,
) -> Transformer:
    """A mask of an image for each of `labels` classes. The decoder's layers are the encoder's, without positions.

    finer, scale: see `MaskTokens`; more than 1 makes a small model on little data learn sooner than the paper's does.
    """
    position = sizes["position"] or GridPosition(interpolation="bilinear")
    spec = vit(**{**sizes, "position": position}, head=False)
    dropped = dict.fromkeys(("dropout", "attention.dropout", "feedforward.dropout"), decoder_dropout)
    block = spec.output.blocks[0].replace(dropped)
    decoder = Stack(embedding=States(), blocks=(block,) * decoder_layers, norm=spec.output.norm)
    masks = MaskTokens(labels=sizes["labels"], width=sizes["d_model"], decoder=decoder, finer=finer, scale=scale)
    return spec.replace({"head": masks, "encoder.drop_path": drop_path})


SIZES: dict[str, dict[str, Any]] = {
    "segmenter-tiny": {"d_model": 192, "n_heads": 3, "d_ff": 768},
    "segmenter-small": {},
    "segmenter-base": {"d_model": 768, "n_heads": 12, "d_ff": 3072},
}

PRESETS = [(segmenter, SIZES)]
