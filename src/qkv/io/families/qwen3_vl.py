"""Qwen3-VL (Bai et al. 2025): a ViT over pictures of any size, from which states of several layers reach the decoder
(DeepStack), and a Qwen 3 with interleaved positions over time, rows and columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...core.spec import brief
from ...nn.attention.multi_head import Attention
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.norm import LayerNorm
from ...nn.layers.patches import GridPosition, Patches, Projector
from ...nn.models.block import Block
from ...nn.models.initialization import Normal
from ...nn.models.joint import Medium, Tower, with_media
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.positions.axes import AxialRotary
from ...nn.positions.base import Position
from ..hub.family import Class, Family, Table, at
from ..hub.keys import ACTIVATIONS, ANY, Config, Key, changed
from ..hub.names import Row
from .llama import FIELDS, NAMES
from .parts import READER, Part
from .qwen3 import FAMILY as QWEN3
from .qwen3 import QK_NORM
from .qwen_vl import (
    BESIDE,
    BLOCK,
    FRAMES,
    MERGE,
    PLACEHOLDERS,
    PLACES,
    Channels,
    InVision,
    MergedTower,
    Sections,
    VisionRope,
    tower_rows,
)
from .vit import SideOfSquare

DEEP = "deepstack_visual_indexes"
_NORM = LayerNorm(eps=1e-6)

# -- the tower -----------------------------------------------------------------------------------------------------------


def qwen3_vision(
    *,
    channels: int = 6,
    patch: int = 16,
    side: int = 48,
    d_model: int = 1152,
    n_layers: int = 27,
    n_heads: int = 16,
    d_ff: int = 4304,
    activation: Activation = "gelu-tanh",
    position: Position | None = None,
) -> Transformer:
    """Return a ViT with rotary positions over rows and columns. Its table of `side` × `side` positions is resized to the
    grid of each picture."""
    block = Block(
        attention=Attention(n_heads=n_heads, bias=True),
        feedforward=FeedForward(d_ff=d_ff, activation=activation),
        norm=_NORM,
        position=position or AxialRotary(),
    )
    return Transformer(
        d_model=d_model,
        encoder=Stack(
            embedding=Patches(image=(side * patch, side * patch), patch=(patch, patch), channels=channels, before=0),
            position=GridPosition(interpolation="bilinear", align_corners=True),
            blocks=(block,) * n_layers,
        ),
        head=None,
        initialization=Normal(scale_residual=False),
    )


def _side_of(spec: Transformer) -> int:
    side: int = at(spec, "encoder.embedding").grid.rows
    return side


VISION = Family(
    model_type="qwen3_vl_vision",
    make=qwen3_vision,
    classes={"Qwen3VLVisionModel": Class()},
    fields=(
        Channels(),
        Key("patch_size", "patch", 16),
        SideOfSquare("num_position_embeddings", "side", 2304),
        Key("hidden_size", "d_model", 1152),
        Key("depth", "n_layers", 27),
        Key("num_heads", "n_heads", 16),
        Key("intermediate_size", "d_ff", 4304),
        Key("hidden_act", "activation", "gelu_pytorch_tanh", {"gelu_pytorch_tanh": "gelu-tanh", **ACTIVATIONS}),
        VisionRope(),
    ),
    places={
        "channels": "encoder.embedding.channels",
        "patch": "encoder.embedding.patch.0",
        "side": _side_of,
        "n_layers": "encoder.n_layers",
        "n_heads": f"{BLOCK}.attention.n_heads",
        "d_ff": f"{BLOCK}.feedforward.d_ff",
        "activation": f"{BLOCK}.feedforward.activation",
        "position": f"{BLOCK}.position",
    },
    names=(),
    harmless=dict.fromkeys(("out_hidden_size", MERGE, DEEP), ANY),
)


# -- the model -----------------------------------------------------------------------------------------------------------


def qwen3_vl(
    *,
    text: Transformer,
    tower: Tower,
    token: int = 151655,
    video: int = 151656,
    width: int | None = None,
    head: bool = True,
) -> Transformer:
    """Return a decoder that reads pictures and videos through a ViT.

    `width` is the width of the merged states, and must equal the decoder's. In the text, each group of
    a video's pictures follows its time.
    """
    if width not in (None, text.d_model):
        raise ValueError(f"pictures get a width of {width}, and the text has {text.d_model}; make them equal")
    spec = with_media(text, Medium(name="image", token=token, video=video, reads=tower, apart=True))
    return spec if head else spec.replace(head=None)


@dataclass(frozen=True)
class DeepTowerPart(MergedTower):
    """The size `tower`: the ViT, its merger, and the mergers of its deep layers, which normalize after merging."""

    def read(self, config: Config) -> Tower:  # type: ignore[override]
        inside = {MERGE: 2, FRAMES: 2, DEEP: [8, 16, 24], **self.inside(config)}
        spec, merge, layers = super().read(config), inside[MERGE], inside[DEEP]
        assert spec.encoder is not None
        if not isinstance(layers, list | tuple) or not all(type(i) is int for i in layers):
            raise ValueError(f"{self.key}: {DEEP} is a list of numbers of layers, not {brief(layers)}")
        merger = Projector(norm=_NORM, shuffle=merge, hidden=spec.d_model * merge**2)
        deep = {"layers": tuple(layers), "deep": merger.replace(norm_last=True)} if layers else {}
        return Tower(stack=spec.encoder, width=spec.d_model, projector=merger, frames=inside[FRAMES], **deep)

    def write(self, value: Tower, sizes: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return {self.key: {**self.written(value, value.stack, sizes), DEEP: list(value.layers)}}


POSITION = Sections(
    base=500000.0, kinds=("default", "linear", "yarn", "llama3"), usual=(24, 20, 20), arrangement="interleaved"
)

TEXT = replace(
    QWEN3,
    model_type="qwen3_vl_text",
    fields=changed(
        FIELDS,
        Key("attention_bias", "attention_bias", False),
        POSITION,
        vocab_size=151936,
        intermediate_size=22016,
        num_key_value_heads=32,
        head_dim=128,
        max_position_embeddings=128000,
    ),
)


IN_BLOCK = {
    "norm1": "norm.attention",
    "norm2": "norm.feedforward",
    "attn.proj": "attention.out",
    "mlp.linear_fc1": "feedforward.up",
    "mlp.linear_fc2": "feedforward.down",
}
"""Names in a block of the tower, theirs and ours."""


def names(spec: Transformer) -> Table:
    return names_with(spec, (*NAMES, QK_NORM))


def names_with(spec: Transformer, text: Iterable[Row]) -> Table:
    """Return the names of a decoder, below `model.language_model`, and of its tower, below `model.visual`."""
    return (*(row.renamed("model.", "model.language_model.") for row in text), *_tower_names(spec, "model.visual"))


def _tower_names(spec: Transformer, theirs: str) -> Table:
    ours, block = f"{READER}.stack", f"{theirs}.blocks.{{i}}"
    projections = (
        (f"{theirs}.merger", f"{READER}.projector"),
        (f"{theirs}.deepstack_merger_list.{{i}}", f"{READER}.deep.{{i}}"),
    )
    return (
        *tower_rows(spec, theirs),
        Row(f"{theirs}.patch_embed.proj.bias", f"{ours}.embedding.project.bias"),
        Row(f"{theirs}.pos_embed.weight", f"{ours}.position.weight"),
        *(Row(f"{block}.{one}.*", f"{ours}.blocks.{{i}}.{other}.*") for one, other in IN_BLOCK.items()),
        *(
            Row(f"{there}.{one}.*", f"{here}.{other}.*")
            for there, here in projections
            for one, other in (("norm", "norm"), ("linear_fc1", "up"), ("linear_fc2", "out"))
        ),
    )


SIZES: dict[str, dict[str, Any]] = {}

FAMILY = Family(
    model_type="qwen3_vl",
    make=qwen3_vl,
    classes={"Qwen3VLForConditionalGeneration": Class()},
    fields=(
        Part("text_config", "text", TEXT, shared={"tie_word_embeddings": False}),
        DeepTowerPart("vision_config", "tower", VISION, alike=("qwen3_vl",)),
        *PLACEHOLDERS,
        InVision("out_hidden_size", "width", 3584),
    ),
    places=PLACES,
    names=names,
    harmless=BESIDE,
)
