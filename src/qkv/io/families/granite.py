"""Granite 3 (Granite Team 2024): Llama with multipliers of embeddings, scores, sublayers and logits (µP)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.transformer import Transformer
from ...nn.positions.rotary import Rotary
from ..hub.family import UNSAID, Class
from ..hub.keys import Key, changed
from .classes import BARE
from .factories import based_on
from .llama import FAMILY as LLAMA
from .llama import llama
from .places import places


@based_on(
    llama,
    without=(
        "d_head",
        "out_bias",
        "feedforwards",
        "qk_norm",
        "qk_norm_over",
        "placement",
        "dropout",
        "unrotated",
        "windows",
    ),
    vocab_size=49155,
    d_model=2048,
    n_layers=40,
    n_kv_heads=8,
    d_ff=8192,
    tied=True,
)
def granite(
    *,
    embedding_multiplier: float = 1.0,
    attention_multiplier: float = 1.0,
    residual_multiplier: float = 1.0,
    logits_scaling: float = 1.0,
    **sizes: Any,
) -> Transformer:
    """Llama; scores are multiplied by `attention_multiplier`, logits divided by `logits_scaling`."""
    if not logits_scaling > 0:
        raise ValueError(f"logits_scaling is a number above 0, by which logits are divided, not {logits_scaling}")
    changes: dict[str, Any] = {
        "decoder.embedding.scale": float(embedding_multiplier),
        "decoder.blocks.*.attention.scale": float(attention_multiplier),
        "decoder.blocks.*.residual_multiplier": float(residual_multiplier),
    }
    return llama(**sizes).replace({**changes, "head.scale": 1 / logits_scaling} if sizes["head"] else changes)


SIZES: dict[str, dict[str, Any]] = {
    "granite-3.1-2b": {
        "position": Rotary(base=5e6),
        "max_positions": 131072,
        "embedding_multiplier": 12.0,
        "attention_multiplier": 1 / 64,
        "residual_multiplier": 0.22,
        "logits_scaling": 8.0,
    }
}


def _logits_scaling(spec: Transformer) -> Any:
    if isinstance(spec.head, LanguageModel) and isinstance(spec.head.scale, float):
        return 1 / spec.head.scale
    return UNSAID


FAMILY = replace(
    LLAMA,
    model_type="granite",
    make=granite,
    classes={"GraniteForCausalLM": Class(), "GraniteModel": BARE},
    fields=changed(
        LLAMA.fields,
        Key("embedding_multiplier", "embedding_multiplier", 1.0),
        Key("attention_multiplier", "attention_multiplier", 1.0),
        Key("residual_multiplier", "residual_multiplier", 1.0),
        Key("logits_scaling", "logits_scaling", 1.0),
        without=("d_head",),
    ),
    places={
        **{size: place for size, place in places("decoder").items() if size != "d_head"},
        "embedding_multiplier": "decoder.embedding.scale",
        "attention_multiplier": "decoder.blocks.0.attention.scale",
        "residual_multiplier": "decoder.blocks.0.residual_multiplier",
        "logits_scaling": _logits_scaling,
    },
)
