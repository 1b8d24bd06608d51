"""Masked autoencoders (He et al. 2022): ViT over the visible patches, and a light decoder that predicts the others."""

from __future__ import annotations

from typing import Any

from ...nn.layers.patches import GridPosition, States
from ...nn.models.heads.vision import PixelDecoder
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ..hub.family import Class, Family, Table
from ..hub.keys import Key, changed
from ..hub.names import Row
from ..hub.transforms import Shaped
from .classes import BARE
from .factories import based_on
from .places import Place
from .vit import ENCODER, HUGE, LARGE, MODULES, PLACES, body, layers, renamed, vit


@based_on(vit, without=("before", "after", "stem", "labels", "distilled", "pooler"))
def vit_mae(
    *,
    decoder_width: int = 512,
    decoder_layers: int = 8,
    decoder_heads: int = 16,
    decoder_d_ff: int = 2048,
    masked: float = 0.75,
    normalized: bool = False,
    **sizes: Any,
) -> Transformer:
    """ViT with fixed positions, and a decoder to pixels that learns from the share of patches that is `masked`."""
    position = sizes["position"] or GridPosition(table="sinusoidal")
    spec = vit(**{**sizes, "position": position, "head": False})
    if not sizes["head"]:
        return spec
    block = spec.output.blocks[0].replace({"attention.n_heads": decoder_heads, "feedforward.d_ff": decoder_d_ff})
    decoder = Stack(
        embedding=States(of=spec.output.embedding.grid),
        position=position,
        blocks=(block,) * decoder_layers,
        norm=spec.output.norm,
    )
    head = PixelDecoder(
        width=decoder_width,
        decoder=decoder,
        patch=sizes["patch"],
        channels=sizes["channels"],
        masked=masked,
        normalized=normalized,
    )
    return spec.replace({"head": head})


SIZES: dict[str, dict[str, Any]] = {"vit-mae-base": {}, "vit-mae-large": LARGE, "vit-mae-huge": HUGE}


DECODER_PLACES: dict[str, Place] = {
    "decoder_width": "head.width",
    "decoder_layers": "head.decoder.n_layers",
    "decoder_heads": "head.decoder.blocks.0.attention.n_heads",
    "decoder_d_ff": "head.decoder.blocks.0.feedforward.d_ff",
    "masked": "head.masked",
    "normalized": "head.normalized",
}

_BLOCK = "head.decoder.blocks.{i}"
_LAYERS = layers("decoder.decoder_layers.{i}", _BLOCK)

# Published files have `decoder.decoder_layers`; transformers 5.23 writes `decoder.decoder_encoder.layer`, and reads both.
DECODER_NAMES: Table = (
    *_LAYERS,
    *renamed(_LAYERS),
    *layers("decoder.decoder_encoder.layer.{i}", _BLOCK),
    Row("decoder.mask_token", "head.mask", Shaped((1, 1, -1))),
    Row("decoder.decoder_embed.*", "head.project.*"),
    Row("decoder.decoder_norm.*", "head.decoder.norm.*"),
    Row("decoder.decoder_pred.*", "head.out.*"),
)


def names(spec: Transformer) -> Table:
    table = body(spec, "vit", "cls_token")
    if not isinstance(spec.head, PixelDecoder):
        return table
    positions = Shaped((1, -1, spec.head.width))
    return (*table, *DECODER_NAMES, Row("decoder.decoder_pos_embed", "head.decoder.position.weight", positions))


FAMILY = Family(
    model_type="vit_mae",
    make=vit_mae,
    classes={"ViTMAEForPreTraining": Class(), "ViTMAEModel": BARE},
    prefix="vit.",
    fields=changed(
        ENCODER,
        Key("decoder_hidden_size", "decoder_width", 512),
        Key("decoder_num_hidden_layers", "decoder_layers", 8),
        Key("decoder_num_attention_heads", "decoder_heads", 16),
        Key("decoder_intermediate_size", "decoder_d_ff", 2048),
        Key("mask_ratio", "masked", 0.75),
        Key("norm_pix_loss", "normalized", False),
    ),
    places={**PLACES, **DECODER_PLACES},
    names=names,
    modules=MODULES,
)
