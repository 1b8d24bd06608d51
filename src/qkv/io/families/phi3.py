"""Phi-3 (Abdin et al. 2024): Llama with fused matrices and rotary positions that LongRoPE stretches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..hub.keys import ANY, Key, changed
from ..hub.names import Row
from ..hub.transforms import Joined
from .classes import decoders
from .llama import FAMILY as LLAMA
from .llama import FIELDS, NAMES, llama
from .mistral import PLACES
from .rope import Rope

SIZES: dict[str, dict[str, Any]] = {"phi-3-mini": {"vocab_size": 32064, "d_model": 3072, "d_ff": 8192, "windows": 2047}}

LAYER, BLOCK = "model.layers.{i}", "decoder.blocks.{i}"
FUSED = (
    Row(f"{LAYER}.self_attn.qkv_proj.weight", f"{BLOCK}.attention.[q,k,v].weight", Joined()),
    Row(f"{LAYER}.mlp.gate_up_proj.weight", f"{BLOCK}.feedforward.[gate,up].weight", Joined()),
    Row(f"{LAYER}.mlp.down_proj.weight", f"{BLOCK}.feedforward.down.weight"),
)

FAMILY = replace(
    LLAMA,
    model_type="phi3",
    make=llama,
    classes=decoders("Phi3"),
    fields=changed(
        FIELDS,
        Key("resid_pdrop", "dropout", 0.0),
        Key("sliding_window", "windows", None),
        Rope(original=4096, partial=True, kinds=("default", "longrope")),
        vocab_size=32064,
        hidden_size=3072,
        intermediate_size=8192,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
    ),
    places=PLACES,
    harmless={
        "embd_pdrop": ANY,  # the original drops no embeddings, whatever is said
        "attention_bias": False,  # said by the first checkpoints
    },
    names=(*(row for row in NAMES if "[q,k,v]" not in row.theirs and ".mlp." not in row.theirs), *FUSED),
)
