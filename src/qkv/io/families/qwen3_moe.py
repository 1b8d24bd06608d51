"""Qwen3-MoE (Yang et al. 2025): Qwen 3 with many narrow experts, and none that is shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...nn.models.transformer import Transformer
from ..hub.keys import ANY, Config, Key, changed
from ..hub.names import Row
from .classes import decoders
from .qwen2 import FULL, SLIDING, LayerTypes
from .qwen2_moe import FAMILY as QWEN2_MOE
from .qwen2_moe import KEYS, qwen2_moe
from .qwen2_moe import names as without_norms
from .qwen3 import QK_NORM

qwen3_moe = partial(
    qwen2_moe,
    n_layers=48,
    n_heads=32,
    n_kv_heads=4,
    d_head=128,
    d_ff=6144,
    d_expert=768,
    d_shared=None,
    n_experts=128,
    top_k=8,
    renormalize=True,
    attention_bias=False,
    out_bias=None,
    qk_norm=True,
    max_positions=40960,
)

SIZES: dict[str, dict[str, Any]] = {
    "qwen3-30b-a3b": {},
    "qwen3-235b-a22b": {"d_model": 4096, "n_layers": 94, "n_heads": 64, "d_ff": 12288, "d_expert": 1536},
}


class EveryLayer(LayerTypes):
    """The field `windows`: all layers slide, or none."""

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"use_sliding_window": False, "sliding_window": self.window}

    def types(self, config: Config) -> list[str]:
        slides = config["use_sliding_window"] and config["sliding_window"]
        return [SLIDING if slides else FULL] * config["num_hidden_layers"]

    def write(self, value: Sequence[int | None], sizes: Mapping[str, Any]) -> dict[str, Any]:
        if len(set(value)) > 1:
            raise ValueError(f"all of its layers have the same window, and this model's have {list(value)}")
        return super().write(value, sizes)


def names(spec: Transformer) -> tuple[Row, ...]:
    """Qwen2-MoE's rows and rows for the norms of queries and keys."""
    return (*without_norms(spec), QK_NORM)


FAMILY = replace(
    QWEN2_MOE,
    model_type="qwen3_moe",
    make=qwen3_moe,
    classes=decoders("Qwen3Moe"),
    fields=changed(
        KEYS,
        Key("moe_intermediate_size", "d_expert", 768),
        Key("num_experts", "n_experts", 128, also=("num_local_experts",)),
        Key("attention_bias", "attention_bias", False),
        EveryLayer(),
        num_attention_heads=32,
        num_key_value_heads=4,
        intermediate_size=6144,
        num_experts_per_tok=8,
    ),
    harmless={
        "output_router_logits": ANY,  # what to return; the balance loss is always part of training here
        "max_window_layers": ANY,  # all layers slide, or none
    },
    names=names,
)
