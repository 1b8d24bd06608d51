"""Qwen2-VL (Wang et al. 2024) and Qwen2.5-VL (Bai et al. 2025): a ViT over pictures and videos of any size, whose states a
merger joins, and a Qwen 2 with positions over time, rows and columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from ...core.spec import brief
from ...nn.attention.multi_head import Attention
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.norm import LayerNorm, RMSNorm
from ...nn.layers.patches import Patches, Projector
from ...nn.models.block import Block
from ...nn.models.initialization import Normal
from ...nn.models.joint import Medium, Tower, with_media
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import GridWindows, full, grid_windows
from ...nn.positions.axes import AxialRotary, MultimodalRotary
from ...nn.positions.base import Position
from ...nn.positions.rotary import Rotary
from ..hub.family import Class, Family, Table, at
from ..hub.keys import ACTIVATIONS, ANY, Config, Key, changed
from ..hub.names import Row
from ..hub.transforms import Joined, Shaped
from .llama import NAMES
from .parts import READER, Part, text_of
from .places import Place
from .qwen2 import FAMILY as QWEN2
from .qwen2 import LayerTypes
from .rope import Rope

MEDIUM = "decoder.embedding.media.0"
TOWER = f"{MEDIUM}.reads"
FRAMES, MERGE = "temporal_patch_size", "spatial_merge_size"

# -- the tower -----------------------------------------------------------------------------------------------------------


def qwen_vision(
    *,
    channels: int = 6,
    patch: int = 14,
    image: int = 448,
    d_model: int = 1280,
    n_layers: int = 32,
    n_heads: int = 16,
    d_ff: int = 3420,
    activation: Activation = "silu",
    windows: Sequence[int | None] | None = None,
    position: Position | None = None,
    gated: bool = True,
) -> Transformer:
    """A ViT with rotary positions over rows and columns. `windows` are the sides of each layer's windows in patches, None
    for full attention; Qwen2.5-VL's (`gated`) has RMSNorm and gated layers, Qwen2-VL's LayerNorm and plain ones."""
    norm = norm_of(gated)
    patterns = [full() if size is None else grid_windows(size) for size in windows or (None,) * n_layers]
    blocks = {
        pattern: Block(
            attention=Attention(n_heads=n_heads, bias=True, pattern=pattern),
            feedforward=FeedForward(d_ff=d_ff, activation=activation, gated=gated),
            norm=norm,
        )
        for pattern in set(patterns)
    }
    return Transformer(
        d_model=d_model,
        encoder=Stack(
            embedding=Patches(image=(image, image), patch=(patch, patch), channels=channels, before=0, bias=False),
            position=position or AxialRotary(),
            blocks=tuple(blocks[pattern] for pattern in patterns),
        ),
        head=None,
        initialization=Normal(scale_residual=False),
    )


def norm_of(gated: bool) -> RMSNorm | LayerNorm:
    return RMSNorm() if gated else LayerNorm(eps=1e-6)


@dataclass(frozen=True)
class Windows:
    """The field `windows`: windows in all layers that `fullatt_block_indexes` does not name."""

    size: str = "windows"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], MERGE: 2}

    def read(self, config: Config) -> tuple[int | None, ...]:
        merge, patch = config[MERGE], config["patch_size"]
        side = config["window_size"] // merge // patch * merge
        if not side:
            raise ValueError(
                f"a window_size of {config['window_size']} pixels is less than {merge} × {merge} patches of {patch} pixels"
            )
        whole = config["fullatt_block_indexes"]
        return tuple(None if i in whole else side for i in range(config["depth"]))

    def write(self, value: Sequence[int | None], sizes: Mapping[str, Any]) -> dict[str, Any]:
        sides = {side for side in value if side is not None}
        if len(sides) > 1:
            raise ValueError(f"its layers have windows of one size, and this model's of {sorted(sides)} patches")
        side = next(iter(sides), None)
        own = {} if side is None else {"window_size": side * sizes["patch"]}
        return {**own, "fullatt_block_indexes": [i for i, each in enumerate(value) if each is None]}


@dataclass(frozen=True)
class Channels:
    """The field `channels`: the channels of all pictures that a patch spans."""

    size: str = "channels"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"in_channels": 3, FRAMES: 2}

    def read(self, config: Config) -> int:
        count: int = config["in_channels"] * config[FRAMES]
        return count

    def write(self, value: int, sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {}  # the tower writes both


@dataclass(frozen=True)
class VisionRope:
    """The field `position`, of which the base may be said."""

    size: str = "position"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"rope_parameters": None}

    def read(self, config: Config) -> Position:
        said = {"rope_type": "axial", "rope_theta": 10000.0} | (config["rope_parameters"] or {})
        if said["rope_type"] != "axial" or len(said) > 2:
            raise ValueError(f"rope_parameters {brief(said)} are not built here; what is, is of the rope_type 'axial'")
        return AxialRotary(base=said["rope_theta"])

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(value, AxialRotary) or value != AxialRotary(base=value.base):
            raise ValueError(f"its positions in pictures are axial-rotary, and this model's are {value}")
        return {"rope_parameters": {"rope_type": "axial", "rope_theta": value.base}}


def _windows_of(spec: Transformer) -> tuple[int | None, ...]:
    patterns = [block.attention.pattern for block in at(spec, "encoder").blocks]
    return tuple(pattern.size if isinstance(pattern, GridWindows) else None for pattern in patterns)


BLOCK = "encoder.blocks.0"
VISION = Family(
    model_type="qwen2_5_vl_vision",
    make=qwen_vision,
    classes={"Qwen2_5_VisionTransformerPretrainedModel": Class()},
    fields=(
        Channels(),
        Key("patch_size", "patch", 14),
        Key("hidden_size", "d_model", 3584),
        Key("depth", "n_layers", 32),
        Key("num_heads", "n_heads", 16),
        Key("intermediate_size", "d_ff", 3420),
        Key("hidden_act", "activation", "silu", ACTIVATIONS),
        Windows(),
        VisionRope(),
    ),
    places={
        "channels": "encoder.embedding.channels",
        "patch": "encoder.embedding.patch.0",
        "image": "encoder.embedding.image.0",
        "n_layers": "encoder.n_layers",
        "n_heads": f"{BLOCK}.attention.n_heads",
        "d_ff": f"{BLOCK}.feedforward.d_ff",
        "activation": f"{BLOCK}.feedforward.activation",
        "windows": _windows_of,
        "position": "encoder.position",
    },
    names=(),
    harmless=dict.fromkeys(("in_chans", "spatial_patch_size", "out_hidden_size", "tokens_per_second"), ANY),
)


@dataclass(frozen=True)
class Ratio:
    """The field `d_ff`, a multiple of the width."""

    size: str = "d_ff"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"mlp_ratio": 4}

    def read(self, config: Config) -> int:
        width: int = int(config["embed_dim"] * config["mlp_ratio"])
        return width

    def write(self, value: int, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if value % sizes["d_model"]:
            raise ValueError(
                f"its feed-forward layers are a multiple of {sizes['d_model']} wide, and this model's {value}"
            )
        return {"mlp_ratio": value // sizes["d_model"]}


QWEN2_VISION = Family(
    model_type="qwen2_vl_vision",
    make=partial(qwen_vision, gated=False),
    classes={"Qwen2VisionTransformerPretrainedModel": Class()},
    fields=(
        Channels(),
        Key("patch_size", "patch", 14),
        Key("embed_dim", "d_model", 1280),
        Key("depth", "n_layers", 32),
        Key("num_heads", "n_heads", 16),
        Ratio(),
        Key("hidden_act", "activation", "quick_gelu", {"quick_gelu": "gelu-quick", **ACTIVATIONS}),
        VisionRope(),
    ),
    places={size: place for size, place in VISION.places.items() if size != "windows"},
    names=(),
    harmless=dict.fromkeys(("in_chans", "spatial_patch_size", "hidden_size", MERGE), ANY),
)


# -- the model -----------------------------------------------------------------------------------------------------------


def qwen_vl(
    *,
    text: Transformer,
    tower: Tower,
    token: int = 151655,
    video: int = 151656,
    interval: int = 4,
    width: int | None = None,
    head: bool = True,
) -> Transformer:
    """A decoder that reads pictures and videos through a ViT. `interval` is the distance in time of a video's pictures, and
    `width` the width of the merged states, which has to be the decoder's."""
    if width not in (None, text.d_model):
        raise ValueError(f"pictures get a width of {width}, and the text has {text.d_model}; make them equal")
    medium = Medium(name="image", token=token, video=video, reads=tower, interval=float(interval))
    spec = with_media(text, medium)
    return spec if head else spec.replace(head=None)


class MergedTower(Part):
    """The configuration of a tower, which also contains the keys of its merger."""

    def written(self, value: Tower, stack: Stack, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration of a tower whose ViT is written as `stack`."""
        inside = super().write(Transformer(d_model=value.width, encoder=stack, head=None), sizes)[self.key]
        channels = at(stack, "embedding.channels") // value.frames
        return {**inside, FRAMES: value.frames, "in_channels": channels, MERGE: value.projector.shuffle}


@dataclass(frozen=True)
class TowerPart(MergedTower):
    """The size `tower`: the configuration of the ViT and its merger, which normalizes as the ViT does."""

    gated: bool = True

    def read(self, config: Config) -> Tower:  # type: ignore[override]
        inside = {MERGE: 2, FRAMES: 2, **self.inside(config)}
        spec, merge = super().read(config), inside[MERGE]
        assert spec.encoder is not None and isinstance(spec.encoder.embedding, Patches)
        side = 16 * merge * spec.encoder.embedding.patch[0]
        stack = spec.encoder.replace({"embedding.image": (side, side)})
        projector = Projector(norm=norm_of(self.gated), shuffle=merge, hidden=spec.d_model * merge**2)
        return Tower(stack=stack, width=spec.d_model, projector=projector, frames=inside[FRAMES])

    def write(self, value: Tower, sizes: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return {self.key: self.written(value, value.stack.replace({"embedding.image": (448, 448)}), sizes)}


@dataclass(frozen=True)
class InVision:
    """A size whose key stands in the configuration of the tower."""

    key: str
    size: str
    default: int

    @property
    def keys(self) -> Mapping[str, Any]:
        return {}

    def read(self, config: Config) -> int:
        value: int = (config["vision_config"] or {}).get(self.key, self.default)
        return value

    def write(self, value: float, sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {"vision_config": {self.key: int(value)}}


@dataclass(frozen=True)
class Sections(Rope):
    """The field `position`: rotary parameters with the sections of M-RoPE. `usual` are the default sections."""

    usual: tuple[int, int, int] = (16, 24, 24)
    arrangement: Literal["blocks", "interleaved"] = "blocks"

    def read(self, config: Config) -> Position:
        where = "rope_scaling" if config["rope_scaling"] else "rope_parameters"
        said = dict(config[where] or {})
        sections = said.pop("mrope_section", list(self.usual))
        self._check_arrangement(said.pop("mrope_interleaved", None), where)
        for key in ("type", "rope_type"):
            said |= {key: "default"} if said.get(key) == "mrope" else {}
        rope = super().read({**config, where: said})
        assert isinstance(rope, Rotary)
        if not isinstance(sections, list | tuple) or [type(n) for n in sections] != [int] * 3:
            raise ValueError(f"{where}: mrope_section must be three numbers of pairs, not {brief(sections)}")
        return MultimodalRotary(
            base=rope.base, scaling=rope.scaling, sections=tuple(sections), arrangement=self.arrangement
        )

    def _check_arrangement(self, interleaved: object, where: str) -> None:
        """Raise ValueError if a file names an arrangement that transformers doesn't compute."""
        if interleaved is not None and interleaved is not (self.arrangement == "interleaved"):
            raise ValueError(
                f"{where}: mrope_interleaved is {brief(interleaved)}, and transformers computes M-RoPE of this family "
                f"{self.arrangement}; leave the key out"
            )

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(value, MultimodalRotary) or value.arrangement != self.arrangement:
            raise ValueError(f"its positions are M-RoPE, {self.arrangement}, and this model's are {value}")
        rotary = Rotary(base=value.base, pairs=value.pairs, fraction=value.fraction, scaling=value.scaling)
        written = super().write(rotary, sizes)
        pairs = (sizes.get("d_head") or sizes["d_model"] // sizes["n_heads"]) // 2
        axes = value.axis_of_pairs(pairs)
        own: dict[str, Any] = {"mrope_section": list(value.sections or map(axes.count, range(3)))}
        own |= {"mrope_interleaved": True} if self.arrangement == "interleaved" else {}
        return {"rope_parameters": {**written["rope_parameters"], **own}}


class FlatPart(Part):
    """A part whose keys may be at the top level of the configuration, as in the authors' files."""

    @property
    def keys(self) -> Mapping[str, Any]:
        own = {key: value for field in self.family.fields for key, value in field.keys.items()}
        return {**super().keys, **own, **self.shared}

    def inside(self, config: Config) -> dict[str, Any]:
        own = {key for field in self.family.fields for key in field.keys}
        return super().inside(config) or {key: config[key] for key in own}


TEXT = replace(
    QWEN2,
    model_type="qwen2_5_vl_text",
    fields=changed(
        QWEN2.fields,
        LayerTypes(max_window_layers=80),
        Sections(base=1e6, kinds=("default", "linear", "yarn", "llama3")),
        vocab_size=152064,
        hidden_size=8192,
        intermediate_size=29568,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        rms_norm_eps=1e-5,
    ),
)


def names(spec: Transformer) -> Table:
    """The decoder's names below `model`, and the tower's below `visual`."""
    return (
        *NAMES,
        *(row.renamed("model.", "model.language_model.") for row in NAMES),
        *(row for prefix in ("visual", "model.visual") for row in _tower_names(spec, prefix)),
    )


def tower_rows(spec: Transformer, theirs: str) -> Table:
    """The rows of patches, queries, keys and values."""
    tower = at(spec, TOWER)
    patches, frames = tower.stack.embedding, tower.frames
    convolution = Shaped((-1, patches.channels // frames, frames, *patches.patch))
    qkv, ours = f"{theirs}.blocks.{{i}}.attn.qkv", f"{READER}.stack.blocks.{{i}}.attention.[q,k,v]"
    return (
        Row(f"{theirs}.patch_embed.proj.weight", f"{READER}.stack.embedding.project.weight", convolution),
        *(Row(f"{qkv}.{kind}", f"{ours}.{kind}", Joined()) for kind in ("weight", "bias")),
    )


def _tower_names(spec: Transformer, theirs: str) -> Table:
    ours, projector = f"{READER}.stack.blocks.{{i}}", f"{READER}.projector"
    block = f"{theirs}.blocks.{{i}}"
    return (
        *tower_rows(spec, theirs),
        Row(f"{block}.norm1.*", f"{ours}.norm.attention.*"),
        Row(f"{block}.norm2.*", f"{ours}.norm.feedforward.*"),
        Row(f"{block}.attn.proj.*", f"{ours}.attention.out.*"),
        Row(f"{block}.mlp.[gate,up,down]_proj.*", f"{ours}.feedforward.[gate,up,down].*"),
        Row(f"{block}.mlp.fc1.*", f"{ours}.feedforward.up.*"),
        Row(f"{block}.mlp.fc2.*", f"{ours}.feedforward.down.*"),
        Row(f"{theirs}.merger.ln_q.*", f"{projector}.norm.*"),
        Row(f"{theirs}.merger.mlp.0.*", f"{projector}.up.*"),
        Row(f"{theirs}.merger.mlp.2.*", f"{projector}.out.*"),
    )


SIZES: dict[str, dict[str, Any]] = {}

PLACEHOLDERS = (Key("image_token_id", "token", 151655), Key("video_token_id", "video", 151656))
PLACES: dict[str, Place] = {
    "text": text_of,
    "tower": TOWER,
    "token": f"{MEDIUM}.token",
    "video": f"{MEDIUM}.video",
    "width": "d_model",
}
BESIDE = dict.fromkeys(("vision_start_token_id", "vision_end_token_id"), ANY)
"""Keys for the tokens around pictures. They are ignored, because the text contains these tokens."""

FAMILY = Family(
    model_type="qwen2_5_vl",
    make=qwen_vl,
    classes={"Qwen2_5_VLForConditionalGeneration": Class()},
    fields=(
        FlatPart("text_config", "text", TEXT, shared={"tie_word_embeddings": False}),
        TowerPart("vision_config", "tower", VISION, alike=("qwen2_5_vl",)),
        *PLACEHOLDERS,
        InVision("tokens_per_second", "interval", 4),
        InVision("out_hidden_size", "width", 3584),
    ),
    places={**PLACES, "interval": f"{MEDIUM}.interval"},
    names=names,
    modules={r"^model\.": "model.language_model.", r"^visual\.": "model.visual."},
    harmless={**BESIDE, "vision_token_id": ANY},
)

# Its videos have one picture after the other at each position, whatever the time between them.
QWEN2_VL = replace(
    FAMILY,
    model_type="qwen2_vl",
    make=partial(qwen_vl, interval=1),
    classes={"Qwen2VLForConditionalGeneration": Class()},
    fields=(
        FlatPart(
            "text_config", "text", replace(TEXT, model_type="qwen2_vl_text"), shared={"tie_word_embeddings": False}
        ),
        TowerPart("vision_config", "tower", QWEN2_VISION, alike=("qwen2_vl",), gated=False),
        *PLACEHOLDERS,
        InVision("hidden_size", "width", 3584),
    ),
    places=PLACES,
)
