"""ViT (Dosovitskiy et al. 2021): a pre-norm encoder over patches of an image, and a linear layer on the class token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any

from ...core.spec import brief
from ...nn.attention.multi_head import Attention
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.norm import LayerNorm
from ...nn.layers.patches import GridPosition, Patches, Size
from ...nn.models.block import Block
from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.heads.vision import ImageClassifier
from ...nn.models.initialization import Normal
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.positions.base import Position
from ..hub.family import Class, Family, Table
from ..hub.keys import ACTIVATIONS, ANY, Config, Field, Key, LabelCount, changed
from ..hub.names import Row
from ..hub.transforms import Shaped, Stacked, TransformChain
from .classes import POOLED
from .places import Place, places


def vit(
    *,
    image: Size = (224, 224),
    patch: Size = (16, 16),
    channels: int = 3,
    d_model: int = 768,
    n_layers: int = 12,
    n_heads: int = 12,
    d_ff: int = 3072,
    activation: Activation = "gelu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    attention_bias: bool = True,
    eps: float = 1e-12,
    before: int = 1,
    after: int = 0,
    stem: tuple[int, ...] = (),
    position: Position | None = None,
    labels: int = 1000,
    head: bool = True,
    distilled: bool = False,
    pooler: bool = False,
) -> Transformer:
    """An encoder with a classifier of `labels` classes, or a pooler. If `distilled`, the classifier also reads the
    distillation token. `stem`: widths of convolutions that make the patches (`layers.patches.Patches`)."""
    block = Block(
        attention=Attention(n_heads=n_heads, dropout=attention_dropout, bias=attention_bias, out_bias=True),
        feedforward=FeedForward(d_ff=d_ff, activation=activation),
        norm=LayerNorm(eps=eps),
        dropout=dropout,
    )
    return Transformer(
        d_model=d_model,
        encoder=Stack(
            embedding=Patches(
                image=image, patch=patch, channels=channels, before=before, after=after, stem=stem, dropout=dropout
            ),
            position=position or GridPosition(),
            blocks=(block,) * n_layers,
            norm=LayerNorm(eps=eps),
        ),
        head=ImageClassifier(labels=labels, distilled=distilled) if head else None,
        classification_head=SequenceClassifier(labels=None) if pooler else None,
        initialization=Normal(scale_residual=False),
    )


LARGE: dict[str, Any] = {"d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096}
HUGE: dict[str, Any] = {"patch": (14, 14), "d_model": 1280, "n_layers": 32, "n_heads": 16, "d_ff": 5120}

SIZES: dict[str, dict[str, Any]] = {"vit-base-16": {}, "vit-large-16": LARGE, "vit-huge-14": HUGE}

# -- configuration keys ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SideOfSquare:
    """The side of a square grid. The key gives the number of its places, side²."""

    key: str
    size: str
    default: int

    @property
    def keys(self) -> Mapping[str, Any]:
        return {self.key: self.default}

    def read(self, config: Config) -> int:
        count = config[self.key]
        side = isqrt(max(count, 0))
        if side < 1 or side**2 != count:
            raise ValueError(f"{self.key} is {brief(count)}, and positions fill a square; give a square number")
        return side

    def write(self, value: int, sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {self.key: value**2}


@dataclass(frozen=True)
class Sides:
    """A height and a width: two numbers, or one number for both. A square is written as one number, unless `pair` is set.
    With `square`, only squares are allowed."""

    key: str
    size: str
    default: Size
    pair: bool = False
    square: bool = False

    @property
    def keys(self) -> Mapping[str, Any]:
        return {self.key: self.default}

    def read(self, config: Config) -> Size:
        value = config[self.key]
        sides = (value, value) if isinstance(value, int) else tuple(value)
        if self.square and len(set(sides)) != 1:
            raise ValueError(f"{self.key}={brief(value)} is not built here; only a square is, as one number")
        return sides

    def write(self, value: Size, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if self.square and value[0] != value[1]:
            raise ValueError(f"{self.key} must be one number in this format, and the model has {value[0]} × {value[1]}")
        return {self.key: list(value) if self.pair or value[0] != value[1] else value[0]}


@dataclass(frozen=True)
class Width:
    """The field `d_model`, which is also the width of the pooler's output."""

    size: str = "d_model"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"hidden_size": 768, "pooler_output_size": None}

    def read(self, config: Config) -> int:
        width, pooled = config["hidden_size"], config["pooler_output_size"]
        if pooled not in (None, width):
            raise ValueError(
                f"pooler_output_size={brief(pooled)} is not built here; what is, is hidden_size, {brief(width)}"
            )
        return width

    def write(self, value: int, sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {"hidden_size": value}


ENCODER: tuple[Field, ...] = (
    Sides("image_size", "image", (224, 224)),
    Sides("patch_size", "patch", (16, 16)),
    Key("num_channels", "channels", 3),
    Key("hidden_size", "d_model", 768),
    Key("num_hidden_layers", "n_layers", 12),
    Key("num_attention_heads", "n_heads", 12),
    Key("intermediate_size", "d_ff", 3072),
    Key("hidden_act", "activation", "gelu", ACTIVATIONS),
    Key("hidden_dropout_prob", "dropout", 0.0),
    Key("attention_probs_dropout_prob", "attention_dropout", 0.0),
    Key("qkv_bias", "attention_bias", True),
    Key("layer_norm_eps", "eps", 1e-12),
)
FIELDS = changed(ENCODER, Width(), LabelCount())

PLACES: dict[str, Place] = {
    **places("encoder"),
    **{size: f"encoder.embedding.{size}" for size in ("image", "patch", "channels")},
    "labels": "head.labels",
}

# "encoder_stride" is of a decoder that no class here has.
HARMLESS = {"encoder_stride": ANY, "pooler_act": "tanh"}

# -- tensor names ------------------------------------------------------------------------------------------------------


def stem(spec: Transformer, theirs: str, *tokens: str) -> Table:
    """The names of the embedding's tensors: the tokens before the patches, the patches and their positions."""
    embedding = spec.output.embedding
    assert isinstance(embedding, Patches)
    convolution = Shaped((-1, embedding.channels, *embedding.patch))
    return (
        Row(
            f"{theirs}.[{','.join(tokens)}]",
            "encoder.embedding.before",
            TransformChain(Stacked(), Shaped((len(tokens), 1, 1, -1))),
        ),
        Row(f"{theirs}.patch_embeddings.projection.weight", "encoder.embedding.project.weight", convolution),
        Row(f"{theirs}.patch_embeddings.projection.bias", "encoder.embedding.project.bias"),
        Row(f"{theirs}.position_embeddings", "encoder.position.weight", Shaped((1, -1, spec.d_model))),
    )


def layers(theirs: str, ours: str) -> Table:
    """The names of a stack's layers."""
    return (
        Row(f"{theirs}.attention.attention.[query,key,value].*", f"{ours}.attention.[q,k,v].*"),
        Row(f"{theirs}.attention.output.dense.*", f"{ours}.attention.out.*"),
        Row(f"{theirs}.intermediate.dense.*", f"{ours}.feedforward.up.*"),
        Row(f"{theirs}.output.dense.*", f"{ours}.feedforward.down.*"),
        Row(f"{theirs}.layernorm_before.*", f"{ours}.norm.attention.*"),
        Row(f"{theirs}.layernorm_after.*", f"{ours}.norm.feedforward.*"),
    )


RENAMED = {
    "encoder.layer.": "layers.",
    "attention.attention.[query,key,value]": "attention.[q_proj,k_proj,v_proj]",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}


def renamed(table: Table) -> Table:
    """The rows whose tensors have other names in the memory of transformers 5, which writes files with the old ones."""
    rows = table
    for old, new in RENAMED.items():
        rows = tuple(row.renamed(old, new) for row in rows)
    return tuple(row for row in rows if row not in table)


def body(spec: Transformer, prefix: str, *tokens: str) -> Table:
    """The names of everything but the head."""
    table = (
        *stem(spec, f"{prefix}.embeddings", *tokens),
        *layers(f"{prefix}.encoder.layer.{{i}}", "encoder.blocks.{i}"),
        Row(f"{prefix}.layernorm.*", "encoder.norm.*"),
        Row(f"{prefix}.pooler.dense.*", "classification_head.dense.*"),
    )
    return (*table, *renamed(table))


def names(spec: Transformer) -> Table:
    return (*body(spec, "vit", "cls_token"), Row("classifier.*", "head.out.*"))


MODULES = {
    r"\bencoder\.layer\.": "layers.",
    r"\.attention\.attention\.([qkv])\w+$": r".attention.\1_proj",
    r"\.attention\.output\.dense$": ".attention.o_proj",
    r"\.intermediate\.dense$": ".mlp.fc1",
    r"(?<=\d)\.output\.dense$": ".mlp.fc2",
}
"""Names of modules since transformers 5, which reads and writes files with the older names."""


FAMILY = Family(
    model_type="vit",
    make=vit,
    classes={"ViTForImageClassification": Class(), "ViTModel": POOLED},
    prefix="vit.",
    fields=FIELDS,
    places=PLACES,
    names=names,
    modules=MODULES,
    harmless=HARMLESS,
)
