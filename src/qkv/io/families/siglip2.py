"""SigLIP 2 for pictures of any shape (NaFlex, Tschannen et al. 2025): SigLIP's towers, with a table of positions that is
resized to the grid of each picture.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...nn.layers.patches import GridPosition, Patches, Size
from ...nn.models.dual_encoder import DualEncoder
from ...nn.models.transformer import Transformer
from ..hub.family import Class, Family, Table, at
from ..hub.keys import Key
from ..hub.names import Row
from ..hub.transforms import PixelsLast
from .clip import HARMLESS, IMAGE_PLACES, LAYERS, PIXELS, both_names
from .factories import based_on
from .parts import Part
from .siglip import ACTIVATION, SIGLIP_TEXT_MODEL, image_tower, text_names
from .siglip import FAMILY as SIGLIP
from .siglip import image_names as of_one_size
from .vit import SideOfSquare


@based_on(image_tower, without=("image",))
def naflex_tower(*, side: int = 16, patch: Size = (16, 16), **sizes: Any) -> Transformer:
    """Return a ViT with attention pooling. Its table of `side` × `side` positions is resized to the grid of each picture,
    with antialiasing."""
    tower: Transformer = image_tower(image=(side * patch[0], side * patch[1]), patch=patch, **sizes)
    return tower.replace({"encoder.position": GridPosition(interpolation="bilinear", antialias=True)})


def image_names(spec: Transformer) -> Table:
    """SigLIP's names. Patches are flattened with the colors last."""
    embedding = at(spec, "encoder.embedding")
    assert isinstance(embedding, Patches)
    weight = "encoder.embedding.project.weight"
    return tuple(
        Row(row.theirs, weight, PixelsLast(embedding.channels)) if row.ours == weight else row
        for row in of_one_size(spec)
    )


def names(spec: DualEncoder) -> Table:
    return (
        Row("logit_scale", "logit_scale"),
        Row("logit_bias", "logit_bias"),
        *both_names(text_names(spec.text), image_names(spec.image)),
    )


SIZES: dict[str, dict[str, Any]] = {}

SIGLIP2_TEXT_MODEL = replace(
    SIGLIP_TEXT_MODEL, model_type="siglip2_text_model", classes={"Siglip2TextModel": Class(bare=True)}
)

SIGLIP2_VISION_MODEL = Family(
    model_type="siglip2_vision_model",
    make=naflex_tower,
    classes={"Siglip2VisionModel": Class(bare=True)},
    prefix="vision_model.",
    fields=(
        SideOfSquare("num_patches", "side", 256),
        *(field for field in PIXELS if field.size != "image"),
        Key("vision_use_head", "head", True),
        ACTIVATION,
        Key("layer_norm_eps", "eps", 1e-6),
        *LAYERS,
    ),
    places={
        **{size: place for size, place in IMAGE_PLACES.items() if size != "image"},
        "side": lambda spec: at(spec, "encoder.embedding").grid.rows,
        "head": lambda spec: spec.head is not None,
    },
    names=image_names,
    harmless=HARMLESS,
)

FAMILY = replace(
    SIGLIP,
    model_type="siglip2",
    classes={"Siglip2Model": Class()},
    fields=(
        Part("text_config", "text", SIGLIP2_TEXT_MODEL, alike=("siglip2",)),
        Part("vision_config", "image", SIGLIP2_VISION_MODEL, alike=("siglip2",)),
    ),
    names=names,
)
