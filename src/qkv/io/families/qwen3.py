"""Qwen 3 (Yang et al. 2025): Llama with a norm of each head's queries and keys."""

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
from .qwen2 import LayerTypes

SIZES: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {
        "vocab_size": 151936,
        "d_model": 1024,
        "n_layers": 28,
        "n_heads": 16,
        "n_kv_heads": 8,
        "d_head": 128,
        "d_ff": 3072,
        "eps": 1e-6,
        "tied": True,
        "position": Rotary(base=1e6),
        "max_positions": 40960,
    },
    "qwen3-8b": {
        "vocab_size": 151936,
        "n_layers": 36,
        "n_kv_heads": 8,
        "d_head": 128,
        "d_ff": 12288,
        "eps": 1e-6,
        "position": Rotary(base=1e6),
        "max_positions": 40960,
    },
}

qwen3 = partial(llama, qk_norm=True)

QK_NORM = Row("model.layers.{i}.self_attn.[q,k]_norm.weight", "decoder.blocks.{i}.attention.[q,k]_norm.weight")

FAMILY = replace(
    LLAMA,
    model_type="qwen3",
    make=qwen3,
    classes=decoders("Qwen3"),
    fields=changed(
        FIELDS,
        Key("attention_bias", "attention_bias", False),
        LayerTypes(),
        vocab_size=151936,
        intermediate_size=22016,
        num_key_value_heads=32,
        head_dim=128,
        max_position_embeddings=32768,
    ),
    names=(*NAMES, QK_NORM),
)
