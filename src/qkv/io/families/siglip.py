"""SigLIP (Zhai et al. 2023) and SigLIP 2 (Tschannen et al. 2025): a ViT with attention pooling, and a bidirectional stack
that reads filled texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...nn.layers.feedforward import Activation
from ...nn.layers.norm import LayerNorm
from ...nn.layers.patches import Size
from ...nn.models.dual_encoder import DualEncoder
from ...nn.models.heads.attention_pooling import AttentionPooling
from ...nn.models.transformer import Transformer
from ..hub.family import Class, Family, Table
from ..hub.keys import ACTIVATIONS, Config, Field, Key
from ..hub.names import Row
from ..hub.transforms import Joined, Shaped
from .clip import HARMLESS, IMAGE_PLACES, LAYERS, PIXELS, TEXT_PLACES, both_names, encoder_names, patch_names
from .clip import text_tower as clips_text_tower
from .factories import based_on
from .parts import Part
from .vit import vit


@based_on(
    vit,
    without=("before", "after", "position", "labels", "head", "distilled", "pooler"),
    eps=1e-6,
    activation="gelu-tanh",
)
def image_tower(*, head: bool = True, **sizes: Any) -> Transformer:
    """A ViT without a class token, and attention pooling of its states."""
    tower = vit(**sizes, before=0, head=False)
    if not head:
        return tower
    own = {name: sizes[name] for name in ("n_heads", "d_ff", "activation")}
    return tower.replace(head=AttentionPooling(**own, norm=LayerNorm(eps=sizes["eps"])))


@based_on(
    clips_text_tower,
    without=("masked", "bias", "width"),
    vocab_size=32000,
    d_model=768,
    n_heads=12,
    d_ff=3072,
    max_positions=64,
    activation="gelu-tanh",
    eps=1e-6,
)
def text_tower(*, width: int | None = None, **sizes: Any) -> Transformer:
    """A bidirectional pre-norm stack with learned positions, and a projection of the last token. `width` is the width of the
    projection, by default `d_model`."""
    return clips_text_tower(**sizes, width=width or sizes["d_model"], masked=False, bias=True)


def siglip(
    *,
    vocab_size: int = 32000,
    image: Size = (224, 224),
    patch: Size = (16, 16),
    channels: int = 3,
    d_model: int = 768,
    n_layers: int = 12,
    n_heads: int = 12,
    d_ff: int = 3072,
    text_d_model: int | None = None,
    text_layers: int | None = None,
    text_heads: int | None = None,
    text_d_ff: int | None = None,
    activation: Activation = "gelu-tanh",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    max_positions: int = 64,
    temperature: float = 0.1,
    bias: float = -10.0,
) -> DualEncoder:
    """Two towers: an image tower of `d_model`, `n_layers` … over patches, whose width the vectors have, and a text tower of
    `text_d_model`, `text_layers` …, by default as large. Texts are filled up to `max_positions` tokens."""
    shared: dict[str, Any] = {"activation": activation, "dropout": dropout, "attention_dropout": attention_dropout}
    return towers(
        image=image_tower(
            image=image,
            patch=patch,
            channels=channels,
            d_model=d_model,
            n_layers=n_layers,
            n_heads=n_heads,
            d_ff=d_ff,
            **shared,
        ),
        text=text_tower(
            vocab_size=vocab_size,
            width=d_model,
            d_model=text_d_model or d_model,
            n_layers=text_layers or n_layers,
            n_heads=text_heads or n_heads,
            d_ff=text_d_ff or d_ff,
            max_positions=max_positions,
            **shared,
        ),
        temperature=temperature,
        bias=bias,
    )


def towers(*, text: Transformer, image: Transformer, temperature: float = 0.1, bias: float = -10.0) -> DualEncoder:
    """SigLIP: an image tower and a text tower. Scores are initialized to 10 ⟨u, v⟩ − 10 (Zhai et al. 2023, §3.2)."""
    return DualEncoder(image=image, text=text, temperature=temperature, bias=bias, fills=True)


_SO400M: dict[str, Any] = {"patch": (14, 14), "d_model": 1152, "n_layers": 27, "n_heads": 16, "d_ff": 4304}
_SECOND: dict[str, Any] = {"vocab_size": 256000}

SIZES: dict[str, dict[str, Any]] = {
    "siglip-base-16": {},
    "siglip-large-16-256": {"image": (256, 256), "d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096},
    "siglip-so400m-14-384": {**_SO400M, "image": (384, 384)},
    "siglip2-base-16": _SECOND,
    "siglip2-so400m-14-384": {**_SO400M, **_SECOND, "image": (384, 384)},
}

PRESETS = [(siglip, SIZES)]

# -- configuration keys ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProjectionSize:
    """The width of a text's vector, by default that of the states."""

    size: str = "width"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"projection_size": None, "hidden_size": 768}

    def read(self, config: Config) -> int:
        width: int = config["projection_size"] or config["hidden_size"]
        return width

    def write(self, value: int, sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {"projection_size": value}


ACTIVATION: Field = Key(
    "hidden_act", "activation", "gelu_pytorch_tanh", {"gelu_pytorch_tanh": "gelu-tanh", **ACTIVATIONS}
)


def text_names(spec: Transformer) -> Table:
    return (
        Row("text_model.embeddings.token_embedding.weight", "encoder.embedding.weight"),
        *encoder_names("text_model", "final_layer_norm"),
        Row("text_model.head.*", "head.out.*"),
    )


def image_names(spec: Transformer) -> Table:
    pool = "vision_model.head"
    return (
        *patch_names(spec, "vision_model.embeddings"),
        *encoder_names("vision_model", "post_layernorm"),
        Row(f"{pool}.probe", "head.query", Shaped((1, 1, -1))),
        Row(f"{pool}.attention.in_proj_weight", "head.[q,k,v].weight", Joined()),
        Row(f"{pool}.attention.in_proj_bias", "head.[q,k,v].bias", Joined()),
        Row(f"{pool}.attention.out_proj.*", "head.out.*"),
        Row(f"{pool}.layernorm.*", "head.norm.*"),
        Row(f"{pool}.mlp.fc1.*", "head.feedforward.up.*"),
        Row(f"{pool}.mlp.fc2.*", "head.feedforward.down.*"),
    )


def names(spec: DualEncoder) -> Table:
    return (
        Row("logit_scale", "logit_scale"),
        Row("logit_bias", "logit_bias"),
        *both_names(text_names(spec.text), image_names(spec.image)),
    )


# -- families ----------------------------------------------------------------------------------------------------------

SIGLIP_TEXT_MODEL = Family(
    model_type="siglip_text_model",
    make=text_tower,
    classes={"SiglipTextModel": Class(bare=True)},
    prefix="text_model.",
    fields=(
        Key("vocab_size", "vocab_size", 32000),
        Key("max_position_embeddings", "max_positions", 64),
        ProjectionSize(),
        ACTIVATION,
        Key("layer_norm_eps", "eps", 1e-6),
        *LAYERS,
    ),
    places=TEXT_PLACES,
    names=text_names,
    harmless=HARMLESS,
)

SIGLIP_VISION_MODEL = Family(
    model_type="siglip_vision_model",
    make=image_tower,
    classes={"SiglipVisionModel": Class(bare=True)},
    prefix="vision_model.",
    fields=(
        *PIXELS,
        Key("vision_use_head", "head", True),
        ACTIVATION,
        Key("layer_norm_eps", "eps", 1e-6),
        *LAYERS,
    ),
    places={**IMAGE_PLACES, "head": lambda spec: spec.head is not None},
    names=image_names,
    harmless=HARMLESS,
)


FAMILY = Family(
    model_type="siglip",
    make=towers,
    classes={"SiglipModel": Class()},
    fields=(
        Part("text_config", "text", SIGLIP_TEXT_MODEL, alike=("siglip",)),
        Part("vision_config", "image", SIGLIP_VISION_MODEL, alike=("siglip",)),
    ),
    places={},
    names=names,
    harmless=HARMLESS,
    kind=DualEncoder,
)
