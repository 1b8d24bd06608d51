"""Qwen3-VL-MoE (Bai et al. 2025): Qwen3-VL with the experts of Qwen3-MoE, whose gates are always renormalized."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...nn.layers.moe import MixtureOfExperts
from ...nn.models.transformer import Transformer
from ..hub.family import Class, Table
from ..hub.keys import ANY, Key, changed
from ..hub.names import Row
from ..hub.transforms import Joined, TransformChain, Transposed
from .parts import Part
from .qwen2_moe import KEYS
from .qwen3_moe import FAMILY as QWEN3_MOE
from .qwen3_moe import names as of_layers
from .qwen3_vl import FAMILY as QWEN3_VL
from .qwen3_vl import POSITION, VISION, DeepTowerPart, names_with

TEXT = replace(
    QWEN3_MOE,
    model_type="qwen3_vl_moe_text",
    fields=changed(
        KEYS,
        Key("moe_intermediate_size", "d_expert", 1408),
        Key("num_experts", "n_experts", 60, also=("num_local_experts",)),
        Key("attention_bias", "attention_bias", False),
        POSITION,
        without=("renormalize",),
        num_attention_heads=16,
        num_key_value_heads=16,
        intermediate_size=5632,
        max_position_embeddings=128000,
    ),
    harmless={
        "output_router_logits": ANY,  # what to return; the balance loss is always part of training here
        "norm_topk_prob": True,
    },
)


def names(spec: Transformer) -> Table:
    """Return Qwen3-VL's rows. The experts of a layer share one tensor, with the gate first.

    Published files use the shape (experts, in, out). transformers 5 writes (experts, out, in). If both
    shapes are equal, a tensor is read as (experts, out, in), as in transformers.
    """
    assert spec.decoder is not None
    rows = [row for row in of_layers(spec) if "expert" not in row.theirs]
    for i, block in enumerate(spec.decoder.blocks):
        if isinstance(block.feedforward, MixtureOfExperts):
            theirs, ours = f"model.layers.{i}.mlp.experts", f"decoder.blocks.{i}.feedforward"
            width = block.feedforward.d_ff
            both, down = f"{ours}.[gate,up].weight", f"{ours}.down.weight"
            if 2 * width != spec.d_model:
                rows.append(Row(f"{theirs}.gate_up_proj", both, TransformChain(Transposed(), Joined(1))))
            if width != spec.d_model:
                rows.append(Row(f"{theirs}.down_proj", down, Transposed()))
            rows += [Row(f"{theirs}.gate_up_proj", both, Joined(1)), Row(f"{theirs}.down_proj", down)]
    return names_with(spec, rows)


SIZES: dict[str, dict[str, Any]] = {}

_TOWER = replace(VISION, model_type="qwen3_vl_moe_vision", classes={"Qwen3VLMoeVisionModel": Class()})

FAMILY = replace(
    QWEN3_VL,
    model_type="qwen3_vl_moe",
    classes={"Qwen3VLMoeForConditionalGeneration": Class()},
    fields=changed(
        QWEN3_VL.fields,
        Part("text_config", "text", TEXT, shared={"tie_word_embeddings": False}),
        DeepTowerPart("vision_config", "tower", _TOWER, alike=("qwen3_vl_moe",)),
    ),
    names=names,
)
