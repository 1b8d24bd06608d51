"""OLMo 2 (OLMo Team 2024): Llama with norms of what sublayers give, and of all queries and keys together."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ...nn.positions.rotary import Rotary
from ..hub.keys import Key, changed
from ..hub.names import Row
from .classes import decoders
from .llama import FAMILY as LLAMA
from .llama import FIELDS, NAMES, llama
from .places import places
from .qwen3 import QK_NORM

olmo2 = partial(llama, qk_norm=True, qk_norm_over="all", placement="res-post")

USUAL = {"vocab_size": 100352, "eps": 1e-6, "position": Rotary(base=500000.0), "max_positions": 4096}

SIZES: dict[str, dict[str, Any]] = {
    "olmo-2-1b": {**USUAL, "d_model": 2048, "n_layers": 16, "n_heads": 16, "d_ff": 8192},
    "olmo-2-7b": USUAL,
    "olmo-2-13b": {**USUAL, "d_model": 5120, "n_layers": 40, "n_heads": 40, "d_ff": 13824},
}

LAYER, BLOCK = "model.layers.{i}", "decoder.blocks.{i}"

FAMILY = replace(
    LLAMA,
    model_type="olmo2",
    make=olmo2,
    classes={name: cls for name, cls in decoders("Olmo2").items() if "Token" not in name},
    fields=changed(
        FIELDS, Key("attention_bias", "attention_bias", False), without=("d_head",), vocab_size=50304, rms_norm_eps=1e-5
    ),
    places={size: place for size, place in places("decoder").items() if size != "d_head"},
    names=(
        *(row for row in NAMES if "layernorm" not in row.theirs),
        Row(f"{LAYER}.post_attention_layernorm.weight", f"{BLOCK}.norm_after.attention.weight"),
        Row(f"{LAYER}.post_feedforward_layernorm.weight", f"{BLOCK}.norm_after.feedforward.weight"),
        QK_NORM,
    ),
)
