"""SigLIP's ViT (Zhai et al. 2023), the tower in front of PaliGemma, Gemma 3, Idefics 3 and SmolVLM."""

from __future__ import annotations

from typing import Any

from ...nn.layers.patches import Patches
from ...nn.models.transformer import Transformer
from ..hub.family import Class, Family, Table, at
from ..hub.keys import ANY, Key
from ..hub.names import Row
from ..hub.transforms import Shaped
from .factories import based_on
from .parts import READER
from .vit import PLACES, Sides, vit


@based_on(vit, without=("before", "after", "stem", "labels", "head", "distilled", "pooler", "dropout"))
def siglip_vision(**sizes: Any) -> Transformer:
    """SigLIP's ViT: no class token, and no head."""
    return vit(**sizes, before=0, head=False)


VISION = Family(
    model_type="siglip_vision_model",
    make=siglip_vision,
    classes={"SiglipVisionModel": Class()},
    fields=(
        Sides("image_size", "image", (224, 224)),
        Sides("patch_size", "patch", (16, 16)),
        Key("num_channels", "channels", 3),
        Key("hidden_size", "d_model", 768),
        Key("num_hidden_layers", "n_layers", 12),
        Key("num_attention_heads", "n_heads", 12),
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
    harmless=dict.fromkeys(
        (
            # The head pools states, and models that read all of them have no use for it.
            *("vision_use_head", "num_image_tokens", "projection_dim", "projector_hidden_act", "vocab_size"),
            *("max_image_size", "size", "tie_word_embeddings", "use_base_siglip"),
        ),
        ANY,
    ),
)

HEADLESS = {"vision_config": {"vision_use_head": False}}
"""What files of models with this tower say, which is without its head."""


def tower_names(spec: Transformer, *theirs: str) -> Table:
    """Return the tensor names of a tower without a pooling head, for each accepted prefix. Saving uses the first prefix."""
    patches = at(spec, "decoder.embedding.media.0.reads.stack.embedding")
    assert isinstance(patches, Patches)
    convolution = Shaped((-1, patches.channels, *patches.patch))
    return tuple(row for prefix in theirs for row in _below(prefix, convolution))


def _below(theirs: str, convolution: Shaped) -> Table:
    ours, layer = f"{READER}.stack", f"{theirs}.encoder.layers.{{i}}"
    block = f"{ours}.blocks.{{i}}"
    return (
        Row(f"{theirs}.embeddings.patch_embedding.weight", f"{ours}.embedding.project.weight", convolution),
        Row(f"{theirs}.embeddings.patch_embedding.bias", f"{ours}.embedding.project.bias"),
        Row(f"{theirs}.embeddings.position_embedding.weight", f"{ours}.position.weight"),
        Row(f"{theirs}.embeddings.position_ids", ""),  # in old files
        Row(f"{layer}.self_attn.[q,k,v]_proj.*", f"{block}.attention.[q,k,v].*"),
        Row(f"{layer}.self_attn.out_proj.*", f"{block}.attention.out.*"),
        Row(f"{layer}.mlp.fc1.*", f"{block}.feedforward.up.*"),
        Row(f"{layer}.mlp.fc2.*", f"{block}.feedforward.down.*"),
        Row(f"{layer}.layer_norm1.*", f"{block}.norm.attention.*"),
        Row(f"{layer}.layer_norm2.*", f"{block}.norm.feedforward.*"),
        Row(f"{theirs}.post_layernorm.*", f"{ours}.norm.*"),
        Row(f"{theirs}.head.*", ""),
    )
