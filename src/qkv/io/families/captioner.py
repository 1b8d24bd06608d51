"""Captioner: a ViT reads a picture, and a decoder writes of it, or answers a question that it begins with. Joint: one
decoder reads the picture and the question.

The Transformer of Vaswani et al. 2017, pre-norm, with patches (Dosovitskiy et al. 2021) for its source.
"""

from __future__ import annotations

from typing import Any

from ...nn.layers.embedding import Embedding
from ...nn.layers.patches import GridPosition, Patches
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.initialization import Glorot
from ...nn.models.joint import Medium, Tower, with_media
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import causal
from ...nn.positions.absolute import Sinusoidal
from ...nn.positions.base import Position
from .factories import based_on
from .vit import vit


@based_on(
    vit,
    without=("attention_bias", "eps", "after", "stem", "labels", "head", "distilled", "pooler"),
    d_model=384,
    n_layers=6,
    n_heads=6,
    d_ff=1536,
    dropout=0.1,
    before=0,
)
def captioner(
    *,
    vocab_size: int = 30000,
    position: Position | None = None,
    decoder_layers: int | None = None,
    max_positions: int | None = None,
    **sizes: Any,
) -> Transformer:
    """An encoder over patches, with `before` more tokens, and a decoder of tokens, both pre-norm; `position` is the
    decoder's."""
    vision = vit(**sizes, head=False)
    encoder = vision.output
    block = encoder.blocks[0].replace({"attention.pattern": causal(), "cross": encoder.blocks[0].attention})
    return Transformer(
        vocab_size=vocab_size,
        d_model=vision.d_model,
        max_positions=max_positions,
        encoder=encoder,
        decoder=Stack(
            embedding=Embedding(scale="sqrt", dropout=sizes["dropout"]),
            position=position or Sinusoidal(),
            blocks=(block,) * (decoder_layers or sizes["n_layers"]),
            norm=encoder.norm,
        ),
        head=LanguageModel(),
        initialization=Glorot(),
    )


@based_on(
    vit,
    without=("attention_bias", "eps", "before", "after", "stem", "labels", "head", "distilled", "pooler"),
    d_model=384,
    n_layers=6,
    n_heads=6,
    d_ff=1536,
    dropout=0.1,
)
def joint(
    *,
    vocab_size: int = 30000,
    token: int = 0,
    position: Position | None = None,
    tower_layers: int = 0,
    sound: tuple[int, int] | None = None,
    sound_patch: int = 4,
    series: int | None = None,
    series_patch: int = 8,
    bidirectional: bool = True,
    max_positions: int | None = None,
    **sizes: Any,
) -> Transformer:
    """A pre-norm decoder of tokens that reads pictures in the places of the placeholder `token`: patches with learned
    positions, or the states of a ViT of `tower_layers` as wide as the decoder, through a linear projector. `position` is the
    decoder's. If `bidirectional`, the tokens of a picture attend to each other in both directions.

    With `sound`, mel bands and frames, it also reads log-mel spectrograms, `sound_patch` frames in each vector; with
    `series` the numbers of series, `series_patch` in each. Positions are learned; the placeholders follow `token`."""
    layers = sizes.pop("n_layers")
    vision = vit(**sizes, n_layers=max(tower_layers, 1), before=0, head=False).output
    block = vision.blocks[0].replace({"attention.pattern": causal()})
    text = Transformer(
        vocab_size=vocab_size,
        d_model=sizes["d_model"],
        max_positions=max_positions,
        decoder=Stack(
            embedding=Embedding(scale="sqrt", dropout=sizes["dropout"]),
            position=position or Sinusoidal(),
            blocks=(block,) * layers,
            norm=vision.norm,
        ),
        head=LanguageModel(),
        initialization=Glorot(),
    )
    seen = (
        Medium(name="image", token=token, reads=Tower(stack=vision, width=sizes["d_model"]))
        if tower_layers
        else Medium(name="image", token=token, reads=vision.embedding, position=vision.position)
    )
    heard = () if sound is None else (_strip("sound", token + 1, sound, sound_patch),)
    told = () if series is None else (_strip("series", token + 2, (1, series), series_patch),)
    return with_media(text, seen, *heard, *told, bidirectional=bidirectional)


def _strip(name: str, token: int, size: tuple[int, int], width: int) -> Medium:
    """A medium whose patches are as high as itself: each vector is a moment in time."""
    patches = Patches(image=size, patch=(size[0], width), channels=1, before=0)
    return Medium(name=name, token=token, reads=patches, position=GridPosition())


SIZES: dict[str, dict[str, Any]] = {"captioner": {}}

PRESETS = [(captioner, SIZES), (joint, {"joint": {}})]
