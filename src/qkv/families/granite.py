"""Granite 3 (Granite Team 2024): Llama with multipliers of embeddings, scores, sublayers and logits (µP)."""

from __future__ import annotations

from typing import Any

from ..hub.family import UNSAID, Family
from ..hub.keys import Key, changed
from ..models.transformer import Transformer
from ..positions.base import Position
from ..positions.rotary import Rotary
from .classes import decoders
from .llama import FAMILY as LLAMA
from .llama import NAMES, llama
from .places import places


def granite(
    *,
    vocab_size: int = 49155,
    d_model: int = 2048,
    n_layers: int = 40,
    n_heads: int = 32,
    n_kv_heads: int | None = 8,
    d_ff: int = 8192,
    attention_bias: bool = False,
    feedforward_bias: bool = False,
    attention_dropout: float = 0.0,
    activation: Any = "silu",
    eps: float = 1e-5,
    tied: bool = True,
    position: Position | None = None,
    max_positions: int | None = 4096,
    embedding_multiplier: float = 1.0,
    attention_multiplier: float = 1.0,
    residual_multiplier: float = 1.0,
    logits_scaling: float = 1.0,
    head: bool = True,
) -> Transformer:
    """A decoder-only language model. Scores are multiplied by `attention_multiplier`, logits divided by `logits_scaling`."""
    if not logits_scaling > 0:
        raise ValueError(f"logits_scaling is a number above 0, by which logits are divided, not {logits_scaling}")
    spec = llama(
        vocab_size=vocab_size,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_ff=d_ff,
        activation=activation,
        attention_bias=attention_bias,
        feedforward_bias=feedforward_bias,
        attention_dropout=attention_dropout,
        eps=eps,
        tied=tied,
        position=position,
        max_positions=max_positions,
        head=head,
    )
    changes: dict[str, Any] = {
        "decoder.embedding.scale": float(embedding_multiplier),
        "decoder.blocks.*.attention.scale": float(attention_multiplier),
        "decoder.blocks.*.residual_multiplier": float(residual_multiplier),
    }
    return spec.replace({**changes, "head.scale": 1 / logits_scaling} if head else changes)


SIZES: dict[str, dict[str, Any]] = {
    "granite-3.1-2b": {
        "position": Rotary(base=5e6),
        "max_positions": 131072,
        "embedding_multiplier": 12.0,
        "attention_multiplier": 1 / 64,
        "residual_multiplier": 0.22,
        "logits_scaling": 8.0,
    },
}


def _logits_scaling(spec: Transformer) -> Any:
    scale = getattr(spec.head, "scale", UNSAID)
    return 1 / scale if isinstance(scale, float) else UNSAID


FAMILY = Family(
    model_type="granite",
    make=granite,
    classes={name: cls for name, cls in decoders("Granite").items() if "Sequence" not in name and "Token" not in name},
    prefix="model.",
    fields=changed(
        tuple(field for field in LLAMA.fields if field.size != "d_head"),
        Key("embedding_multiplier", "embedding_multiplier", 1.0),
        Key("attention_multiplier", "attention_multiplier", 1.0),
        Key("residual_multiplier", "residual_multiplier", 1.0),
        Key("logits_scaling", "logits_scaling", 1.0),
    ),
    places={
        **{size: place for size, place in places("decoder").items() if size != "d_head"},
        "embedding_multiplier": "decoder.embedding.scale",
        "attention_multiplier": "decoder.blocks.0.attention.scale",
        "residual_multiplier": "decoder.blocks.0.residual_multiplier",
        "logits_scaling": _logits_scaling,
    },
    names=NAMES,
)
