"""Idefics 3 (Laurençon et al. 2024) and SmolVLM (Marafioti et al. 2025): SigLIP's ViT, pixel shuffle and a Llama."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ...nn.layers.patches import Projector
from ...nn.models.joint import Medium, Tower, with_media
from ...nn.models.transformer import Transformer
from ..hub.family import Class, Family, Table
from ..hub.keys import ANY, Key, changed
from ..hub.names import Row
from .classes import BARE
from .llama import FAMILY as LLAMA
from .llama import NAMES
from .parts import READER, Part, text_of, vision_of
from .siglip_vision import VISION as SIGLIP
from .siglip_vision import tower_names
from .vit import Sides

IMAGE = "image"

VISION = replace(
    SIGLIP,
    model_type="idefics3_vision",
    classes={"Idefics3VisionTransformer": Class()},
    fields=changed(
        SIGLIP.fields,
        Sides("patch_size", "patch", (32, 32)),
        hidden_size=1152,
        num_attention_heads=16,
    ),
)

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


TOWERS = ("idefics3_vision", "smolvlm_vision", "idefics3", "siglip_vision_model")  # names of one and the same

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
    return (
        *(row.renamed("model.", "model.text_model.") for row in NAMES),
        *tower_names(spec, "model.vision_model"),
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
        Part("vision_config", "vision", VISION, alike=TOWERS),
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
        FAMILY.fields, Part("vision_config", "vision", replace(VISION, model_type="smolvlm_vision"), alike=TOWERS)
    ),
)
