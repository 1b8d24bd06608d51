"""CLIP (Radford et al. 2021): a ViT and a causal Transformer as two towers, each with a projection without bias."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...core.spec import brief
from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.norm import LayerNorm
from ...nn.layers.patches import Patches, Size
from ...nn.models.block import Block
from ...nn.models.dual_encoder import DualEncoder
from ...nn.models.heads.sequence import Projection
from ...nn.models.initialization import Glorot, Normal
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import Full, causal
from ...nn.positions.absolute import Learned
from ..hub.family import Class, Family, Table
from ..hub.keys import ACTIVATIONS, ANY, Config, Field, Key, changed
from ..hub.names import Row
from ..hub.transforms import Shaped
from .classes import BARE
from .factories import based_on
from .parts import Part
from .places import Place, places
from .vit import Sides, vit


@based_on(
    vit,
    without=("before", "after", "position", "labels", "head", "distilled", "pooler"),
    patch=(32, 32),
    eps=1e-5,
    activation="gelu-quick",
)
def image_tower(*, width: int = 512, head: bool = True, **sizes: Any) -> Transformer:
    """CLIP's ViT, which also normalizes embedded patches and has no bias there, with a projection of the class token."""
    tower = vit(**sizes, head=False)
    return tower.replace(
        {
            "encoder.embedding.bias": False,
            "encoder.embedding.norm": LayerNorm(eps=sizes["eps"]),
            "head": Projection(width=width) if head else None,
        }
    )


def text_tower(
    *,
    vocab_size: int = 49408,
    width: int = 512,
    d_model: int = 512,
    n_layers: int = 12,
    n_heads: int = 8,
    d_ff: int = 2048,
    activation: Activation = "gelu-quick",
    eps: float = 1e-5,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    max_positions: int = 77,
    masked: bool = True,
    bias: bool = False,
    head: bool = True,
) -> Transformer:
    """A pre-norm stack with learned positions, causal if `masked`, and a projection of the last token."""
    block = Block(
        attention=Attention(n_heads=n_heads, dropout=attention_dropout, pattern=causal() if masked else Full()),
        feedforward=FeedForward(d_ff=d_ff, activation=activation),
        norm=LayerNorm(eps=eps),
        dropout=dropout,
    )
    stack = Stack(
        embedding=Embedding(dropout=dropout), position=Learned(), blocks=(block,) * n_layers, norm=LayerNorm(eps=eps)
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        encoder=stack,
        head=Projection(width=width, pool="last", bias=bias) if head else None,
        initialization=Normal(scale_residual=False),
    )


def clip(
    *,
    vocab_size: int = 49408,
    width: int = 512,
    image: Size = (224, 224),
    patch: Size = (32, 32),
    channels: int = 3,
    stem: tuple[int, ...] = (),
    d_model: int = 768,
    n_layers: int = 12,
    n_heads: int = 12,
    d_ff: int = 3072,
    text_d_model: int = 512,
    text_layers: int = 12,
    text_heads: int = 8,
    text_d_ff: int = 2048,
    activation: Activation = "gelu-quick",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    max_positions: int = 77,
    temperature: float = 0.07,
    bias: float | None = None,
) -> DualEncoder:
    """Two towers whose vectors have the width `width`: an image tower of `d_model`, `n_layers` … over patches, and a text
    tower of `text_d_model`, `text_layers` … that reads at most `max_positions` tokens. `bias` is SigLIP's b."""
    shared: dict[str, Any] = {
        "width": width,
        "activation": activation,
        "dropout": dropout,
        "attention_dropout": attention_dropout,
    }
    pixels: dict[str, Any] = {"image": image, "patch": patch, "channels": channels, "stem": stem}
    return DualEncoder(
        image=image_tower(**pixels, d_model=d_model, n_layers=n_layers, n_heads=n_heads, d_ff=d_ff, **shared),
        text=text_tower(
            vocab_size=vocab_size,
            d_model=text_d_model,
            n_layers=text_layers,
            n_heads=text_heads,
            d_ff=text_d_ff,
            max_positions=max_positions,
            **shared,
        ),
        temperature=temperature,
        bias=bias,
        initialization=Glorot(),  # by the width, as CLIP's
    )


_LARGE: dict[str, Any] = {
    "patch": (14, 14), "d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096,
    "width": 768, "text_d_model": 768, "text_heads": 12, "text_d_ff": 3072,
}  # fmt: skip

SIZES: dict[str, dict[str, Any]] = {
    "clip": {},
    "clip-vit-base-32": {},
    "clip-vit-base-16": {"patch": (16, 16)},
    "clip-vit-large-14": _LARGE,
    "clip-vit-large-14-336": {**_LARGE, "image": (336, 336)},
}

PRESETS = [(clip, SIZES)]

# -- configuration keys ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogitScale:
    """The logarithm of the scale at the beginning of training, −log of the field `temperature`."""

    size: str = "temperature"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"logit_scale_init_value": 2.6592}

    def read(self, config: Config) -> float:
        return math.exp(-config["logit_scale_init_value"])

    def write(self, value: float, sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {"logit_scale_init_value": -math.log(value)}


@dataclass(frozen=True)
class EndOfText:
    """The token that ends a text, `eos_token_id` of the texts' configuration; 2 stands for the largest token of a text."""

    size: str = "end"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"text_config": {}, "text_config_dict": None}

    def read(self, config: Config) -> int | str:
        token = (config["text_config_dict"] or config["text_config"]).get("eos_token_id", 49407)
        if isinstance(token, bool) or not isinstance(token, int):
            raise ValueError(f"text_config: eos_token_id {brief(token)} is not built here; what is, is one token")
        return "largest" if token == 2 else token

    def write(self, value: int | Literal["largest"] | None, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if value is None:
            raise ValueError(
                "eos_token_id ends each text there, and this model has no end; give it the token that does"
            )
        if value == 2:
            raise ValueError("eos_token_id=2 stands for the largest token of a text there, and for the token 2 here")
        return {"text_config": {"eos_token_id": 2 if value == "largest" else value}}


QUICK = {"quick_gelu": "gelu-quick", **ACTIVATIONS}

LAYERS: tuple[Field, ...] = (
    Key("hidden_size", "d_model", 768),
    Key("intermediate_size", "d_ff", 3072),
    Key("num_hidden_layers", "n_layers", 12),
    Key("num_attention_heads", "n_heads", 12),
    Key("attention_dropout", "attention_dropout", 0.0),
)
"""The keys of a tower's layers."""
PIXELS: tuple[Field, ...] = (
    Sides("image_size", "image", (224, 224), square=True),
    Sides("patch_size", "patch", (16, 16), square=True),
    Key("num_channels", "channels", 3),
)
"""The keys of a tower that reads pictures."""
IMAGE_PLACES: dict[str, Place] = {
    **places("encoder"),
    **{size: f"encoder.embedding.{size}" for size in ("image", "patch", "channels")},
    "width": "head.width",
}
TEXT_PLACES: dict[str, Place] = {**places("encoder"), "width": "head.width"}
# What only says how parameters began, or how the authors' code was called.
HARMLESS = dict.fromkeys(("initializer_factor", "tf_legacy_loss", "tie_word_embeddings", "dropout"), ANY)

# -- tensor names ------------------------------------------------------------------------------------------------------


def encoder_names(theirs: str, norm: str) -> Table:
    """The names of a tower's positions and layers, and of the norm behind them."""
    layer, block = f"{theirs}.encoder.layers.{{i}}", "encoder.blocks.{i}"
    return (
        Row(f"{theirs}.embeddings.position_embedding.weight", "encoder.position.weight"),
        Row(f"{layer}.self_attn.[q,k,v]_proj.*", f"{block}.attention.[q,k,v].*"),
        Row(f"{layer}.self_attn.out_proj.*", f"{block}.attention.out.*"),
        Row(f"{layer}.mlp.fc1.*", f"{block}.feedforward.up.*"),
        Row(f"{layer}.mlp.fc2.*", f"{block}.feedforward.down.*"),
        Row(f"{layer}.layer_norm1.*", f"{block}.norm.attention.*"),
        Row(f"{layer}.layer_norm2.*", f"{block}.norm.feedforward.*"),
        Row(f"{theirs}.{norm}.*", "encoder.norm.*"),
        Row(f"{theirs}.embeddings.position_ids", ""),
    )


def text_names(spec: Transformer) -> Table:
    return (
        Row("text_model.embeddings.token_embedding.weight", "encoder.embedding.weight"),
        *encoder_names("text_model", "final_layer_norm"),
        Row("text_projection.weight", "head.out.weight"),
    )


def patch_names(spec: Transformer, theirs: str) -> Table:
    """The names of the linear map of patches."""
    embedding = spec.output.embedding
    assert isinstance(embedding, Patches)
    convolution = Shaped((-1, embedding.channels, *embedding.patch))
    return (
        Row(f"{theirs}.patch_embedding.weight", "encoder.embedding.project.weight", convolution),
        Row(f"{theirs}.patch_embedding.bias", "encoder.embedding.project.bias"),
    )


def image_names(spec: Transformer) -> Table:
    return (
        Row("vision_model.embeddings.class_embedding", "encoder.embedding.before", Shaped((-1,))),
        *patch_names(spec, "vision_model.embeddings"),
        Row("vision_model.pre_layrnorm.*", "encoder.embedding.norm.*"),
        *encoder_names("vision_model", "post_layernorm"),
        Row("visual_projection.weight", "head.out.weight"),
    )


def both_names(texts: Table, images: Table) -> Table:
    """The names of two towers in one model."""
    towers = {"text": texts, "image": images}
    return tuple(
        Row(row.theirs, row.ours and f"{tower}.{row.ours}", row.how) for tower, rows in towers.items() for row in rows
    )


def names(spec: DualEncoder) -> Table:
    return (
        Row("logit_scale", "logit_scale", Shaped(())),
        *both_names(text_names(spec.text), image_names(spec.image)),
    )


# -- families ----------------------------------------------------------------------------------------------------------

CLIP_TEXT_MODEL = Family(
    model_type="clip_text_model",
    make=text_tower,
    classes={"CLIPTextModelWithProjection": Class(), "CLIPTextModel": BARE},
    prefix="text_model.",
    fields=(
        Key("vocab_size", "vocab_size", 49408),
        Key("max_position_embeddings", "max_positions", 77),
        Key("projection_dim", "width", 512),
        Key("hidden_act", "activation", "quick_gelu", QUICK),
        Key("layer_norm_eps", "eps", 1e-5),
        *changed(LAYERS, hidden_size=512, intermediate_size=2048, num_attention_heads=8),
    ),
    places=TEXT_PLACES,
    names=text_names,
    harmless=HARMLESS,
)

CLIP_VISION_MODEL = Family(
    model_type="clip_vision_model",
    make=image_tower,
    classes={"CLIPVisionModelWithProjection": Class(), "CLIPVisionModel": BARE},
    prefix="vision_model.",
    fields=(
        Sides("patch_size", "patch", (32, 32), square=True),
        *(field for field in PIXELS if field.size != "patch"),
        Key("projection_dim", "width", 512),
        Key("hidden_act", "activation", "quick_gelu", QUICK),
        Key("layer_norm_eps", "eps", 1e-5),
        *LAYERS,
    ),
    places=IMAGE_PLACES,
    names=image_names,
    harmless=HARMLESS,
)

WIDTH = {"projection_dim": 512}


def towers(
    *, text: Transformer, image: Transformer, temperature: float = 0.07, end: int | Literal["largest"] | None = None
) -> DualEncoder:
    """CLIP of two towers; `end` is the token that ends a text."""
    return DualEncoder(image=image, text=text, temperature=temperature, end=end)


FAMILY = Family(
    model_type="clip",
    make=towers,
    classes={"CLIPModel": Class()},
    fields=(
        Part("text_config", "text", CLIP_TEXT_MODEL, shared=WIDTH, instead="text_config_dict", alike=("clip",)),
        Part("vision_config", "image", CLIP_VISION_MODEL, shared=WIDTH, instead="vision_config_dict", alike=("clip",)),
        EndOfText(),
        LogitScale(),
    ),
    places={},
    names=names,
    harmless=HARMLESS,
    kind=DualEncoder,
)
