"""Idefics 3 (Laurençon et al. 2024) and SmolVLM (Marafioti et al. 2025): SigLIP's ViT, pixel shuffle and a Llama."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ...nn.layers.embedding import Embedding
from ...nn.layers.patches import Patches
from ...nn.models.initialization import Normal
from ...nn.models.joint import Joint, Medium, Projector, Tower, with_media
from ...nn.models.transformer import Transformer
from ..hub.family import Class, Family, Table, at
from ..hub.keys import ANY, Key, changed
from ..hub.names import Row
from ..hub.transforms import Shaped
from .classes import BARE
from .factories import based_on
from .llama import FAMILY as LLAMA
from .llama import NAMES
from .parts import Part
from .vit import PLACES, Sides, vit

IMAGE, READER = "image", "decoder.embedding.media.image.reader"

# -- the tower ---------------------------------------------------------------------------------------------------------


@based_on(vit, without=("before", "after", "stem", "labels", "head", "distilled", "pooler", "dropout"))
def siglip_vision(**sizes: Any) -> Transformer:
    """SigLIP's ViT (Zhai et al. 2023): no class token, and no head."""
    return vit(**sizes, before=0, head=False)


VISION = Family(
    model_type="idefics3_vision",
    make=siglip_vision,
    classes={"Idefics3VisionTransformer": Class()},
    fields=(
        Sides("image_size", "image", (224, 224)),
        Sides("patch_size", "patch", (32, 32)),
        Key("num_channels", "channels", 3),
        Key("hidden_size", "d_model", 1152),
        Key("num_hidden_layers", "n_layers", 12),
        Key("num_attention_heads", "n_heads", 16),
        Key("intermediate_size", "d_ff", 3072),
        Key(
            "hidden_act",
            "activation",
            "gelu_pytorch_tanh",
            {"gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "relu": "relu"},
        ),
        Key("attention_dropout", "attention_dropout", 0.0),
        Key("layer_norm_eps", "eps", 1e-6),
    ),
    places={size: place for size, place in PLACES.items() if size != "labels"},
    names=(),
    harmless=dict.fromkeys(("max_image_size", "size", "tie_word_embeddings", "use_base_siglip"), ANY),
)


# -- configurations within a configuration -----------------------------------------------------------------------------

# Keys of the authors' files that the class does not read.
UNREAD = dict.fromkeys(
    (
        *(
            "_flash_attn_2_enabled",
            "is_llama_config",
            "neftune_noise_alpha",
            "perceiver_config",
            "pixel_shuffle_factor",
        ),
        *("transformers.js_config", "qk_layer_norms", "rope_interleaved", "use_resampler"),
    ),
    ANY,
)
TEXT = replace(LLAMA, harmless={**LLAMA.harmless, **UNREAD})


# Names of one and the same tower.
ALIKE = ("idefics3_vision", "smolvlm_vision", "idefics3", "siglip_vision_model")


def text_of(spec: Transformer) -> Transformer:
    """The decoder without its media. Raises AttributeError for a model without any."""
    embedding = at(spec, "decoder.embedding")
    if not isinstance(embedding, Joint):
        raise AttributeError("no media")
    fields = {name: getattr(embedding, name) for name in Embedding.model_fields}
    return spec.replace({"decoder.embedding": Embedding(**fields), "head": spec.head or LLAMA.make().head})


def vision_of(spec: Transformer) -> Transformer:
    """The tower of the pictures, as a model."""
    tower = at(spec, "decoder.embedding.media.0.reads")
    return Transformer(d_model=tower.width, encoder=tower.stack, head=None, initialization=Normal(scale_residual=False))


# -- the model -----------------------------------------------------------------------------------------------------------


def idefics3(
    *, text: Transformer, vision: Transformer, token: int = 128257, shuffle: int = 2, head: bool = True
) -> Transformer:
    """A decoder of text that reads pictures through a ViT, with `shuffle` × `shuffle` states side by side in each vector."""
    assert vision.encoder is not None
    tower = Tower(stack=vision.encoder, width=vision.d_model, projector=Projector(shuffle=shuffle, bias=False))
    _check_positions(tower)
    spec = with_media(text, Medium(name=IMAGE, token=token, reads=tower))
    return spec if head else spec.replace(head=None)


def _check_positions(tower: Tower) -> None:
    """Raise ValueError if transformers takes other rows of the table of positions, by rounding, than the patches' own."""
    grid = tower.stack.embedding.grid
    if grid is None or grid.rows != grid.columns:
        raise ValueError("image_size and patch_size make a grid of as many rows as columns; give a square image")
    n = grid.rows
    edges = torch.arange(1 / n, 1.0, 1 / n, dtype=torch.float32)
    places = (torch.arange(n, dtype=torch.float32) * (1.0 / torch.tensor(n))).clamp(max=1.0 - 1e-6)
    if torch.bucketize(places, edges, right=True).tolist() != list(range(n)):
        raise ValueError(
            f"an image_size of {n} patches is not built here: transformers rounds the places of some patches to those of "
            "their neighbors"
        )


def names(spec: Transformer) -> Table:
    """The decoder's names below `text_model`, the tower's below `vision_model`, and the projection's."""
    patches = at(spec, "decoder.embedding.media.0.reads.stack.embedding")
    assert isinstance(patches, Patches)
    theirs, ours, layer = "model.vision_model", f"{READER}.stack", "model.vision_model.encoder.layers.{i}"
    convolution = Shaped((-1, patches.channels, *patches.patch))
    return (
        *(row.renamed("model.", "model.text_model.") for row in NAMES),
        Row(f"{theirs}.embeddings.patch_embedding.weight", f"{ours}.embedding.project.weight", convolution),
        Row(f"{theirs}.embeddings.patch_embedding.bias", f"{ours}.embedding.project.bias"),
        Row(f"{theirs}.embeddings.position_embedding.weight", f"{ours}.position.weight"),
        Row(f"{layer}.self_attn.[q,k,v]_proj.*", f"{ours}.blocks.{{i}}.attention.[q,k,v].*"),
        Row(f"{layer}.self_attn.out_proj.*", f"{ours}.blocks.{{i}}.attention.out.*"),
        Row(f"{layer}.mlp.fc1.*", f"{ours}.blocks.{{i}}.feedforward.up.*"),
        Row(f"{layer}.mlp.fc2.*", f"{ours}.blocks.{{i}}.feedforward.down.*"),
        Row(f"{layer}.layer_norm1.*", f"{ours}.blocks.{{i}}.norm.attention.*"),
        Row(f"{layer}.layer_norm2.*", f"{ours}.blocks.{{i}}.norm.feedforward.*"),
        Row(f"{theirs}.post_layernorm.*", f"{ours}.norm.*"),
        Row("model.connector.modality_projection.proj.weight", f"{READER}.projector.out.weight"),
    )


SIZES: dict[str, dict[str, Any]] = {}

FAMILY = Family(
    model_type="idefics3",
    make=idefics3,
    classes={"Idefics3ForConditionalGeneration": Class(), "Idefics3Model": BARE},
    prefix="model.",
    fields=(
        Part("text_config", "text", TEXT, shared={"tie_word_embeddings": False}, usual={"rms_norm_eps": 1e-5}),
        Part("vision_config", "vision", VISION, alike=ALIKE),
        Key("image_token_id", "token", 128257),
        Key("scale_factor", "shuffle", 2),
    ),
    places={
        "text": text_of,
        "vision": vision_of,
        "token": "decoder.embedding.media.0.token",
        "shuffle": "decoder.embedding.media.0.reads.projector.shuffle",
    },
    names=names,
    harmless=dict.fromkeys(("image_seq_len", "vocab_size", "use_reentrant_checkpointing", "_pad_token_id"), ANY),
)

SMOLVLM = replace(
    FAMILY,
    model_type="smolvlm",
    classes={"SmolVLMForConditionalGeneration": Class(), "SmolVLMModel": BARE},
    fields=changed(
        FAMILY.fields, Part("vision_config", "vision", replace(VISION, model_type="smolvlm_vision"), alike=ALIKE)
    ),
)
