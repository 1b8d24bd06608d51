"""Gemma 2 (Gemma Team 2024): norms around each sublayer, windows in every second layer, bounded scores and logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.norm import NoNorm, RMSNorm
from ...nn.models.block import Block
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.initialization import Normal
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.positions.base import Position
from ...nn.positions.rotary import Rotary
from ..hub.family import at
from ..hub.keys import ACTIVATIONS, ANY, Config, Key, changed
from ..hub.names import Row
from .classes import decoders
from .llama import FAMILY as LLAMA
from .llama import FIELDS, NAMES
from .places import heads, places, sliding
from .qwen2 import FULL, SLIDING, LayerTypes


def gemma2(
    *,
    vocab_size: int = 256000,
    d_model: int = 2304,
    n_layers: int = 26,
    n_heads: int = 8,
    n_kv_heads: int | None = 4,
    d_head: int | None = 256,
    d_ff: int = 9216,
    activation: Activation = "gelu-tanh",
    attention_bias: bool = False,
    query_width: float = 256,
    qk_norm: bool = False,
    softcap: float | None = 50.0,
    logits_softcap: float | None = 30.0,
    attention_dropout: float = 0.0,
    eps: float = 1e-6,
    tied: bool = True,
    position: Position | None = None,
    local_position: Position | None = None,
    windows: Sequence[int | None] | int | None = 4096,
    period: int = 2,
    max_positions: int | None = 8192,
    head: bool = True,
) -> Transformer:
    """A decoder-only language model; scores are scaled by 1/√query_width.

    `windows` as a number is the window of all layers but the last of each `period`; else there is one for each. Layers
    with a window have `local_position` if it is given.
    """
    if not query_width > 0:
        raise ValueError(
            f"query_width is a number above 0, the width by whose root scores are divided, not {query_width}"
        )
    norm = RMSNorm(eps=eps, offset=1.0)
    if windows is None or isinstance(windows, int):
        windows = tuple(windows if (i + 1) % period else None for i in range(n_layers))
    blocks = {
        window: Block(
            position=None if window is None else local_position,
            attention=Attention(
                n_heads=n_heads,
                n_kv_heads=n_kv_heads,
                d_head=d_head,
                bias=attention_bias,
                pattern=sliding(window),
                dropout=attention_dropout,
                scale=query_width**-0.5,
                softcap=softcap,
                qk_norm=norm if qk_norm else NoNorm(),
            ),
            feedforward=FeedForward(d_ff=d_ff, activation=activation, gated=True, bias=False),
            norm=norm,
            placement="sandwich",
        )
        for window in set(windows)
    }
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        decoder=Stack(
            embedding=Embedding(scale="sqrt"),
            position=position or Rotary(),
            blocks=tuple(blocks[window] for window in windows),
            norm=norm,
        ),
        head=LanguageModel(tied=tied, softcap=logits_softcap) if head else None,
        initialization=Normal(scale_residual=False),
    )


SIZES: dict[str, dict[str, Any]] = {
    "gemma-2-2b": {},
    "gemma-2-9b": {"d_model": 3584, "n_layers": 42, "n_heads": 16, "n_kv_heads": 8, "d_ff": 14336},
    "gemma-2-27b": {
        "d_model": 4608,
        "n_layers": 46,
        "n_heads": 32,
        "n_kv_heads": 16,
        "d_head": 128,
        "d_ff": 36864,
        "query_width": 144,
    },
}


class Alternating(LayerTypes):
    """The field `windows`: without `layer_types`, all layers slide but the last of each `period`."""

    period = 2

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"sliding_window": self.window, "layer_types": None}

    def types(self, config: Config) -> list[str]:
        return [SLIDING if (i + 1) % self.period else FULL for i in range(config["num_hidden_layers"])]

    def write(self, value: Sequence[int | None], sizes: Mapping[str, Any]) -> dict[str, Any]:
        settings = super().write(value, sizes)
        return settings | {
            "sliding_window": settings["sliding_window"] or self.window
        }  # the Hub asks for one in any case


def _query_width(spec: Transformer) -> float:
    scale = at(spec, "decoder.blocks.0.attention.scale")
    if scale is None:
        return heads(at(spec, "decoder"), spec.d_model)[2]
    width: float = round(scale**-2, 6)
    return int(width) if width.is_integer() else width


BLOCK = "decoder.blocks.{i}"
LAYER = "model.layers.{i}"
NORMS = (
    Row(f"{LAYER}.post_attention_layernorm.weight", f"{BLOCK}.norm_after.attention.weight"),
    Row(f"{LAYER}.pre_feedforward_layernorm.weight", f"{BLOCK}.norm.feedforward.weight"),
    Row(f"{LAYER}.post_feedforward_layernorm.weight", f"{BLOCK}.norm_after.feedforward.weight"),
)
GEMMA2_NAMES = (*(row for row in NAMES if "post_attention_layernorm" not in row.theirs), *NORMS)

FAMILY = replace(
    LLAMA,
    model_type="gemma2",
    make=gemma2,
    classes=decoders("Gemma2"),
    fields=changed(
        FIELDS,
        Key("hidden_activation", "activation", "gelu_pytorch_tanh", {"gelu_pytorch_tanh": "gelu-tanh", **ACTIVATIONS}),
        Key("attention_bias", "attention_bias", False),
        Key("query_pre_attn_scalar", "query_width", 256),
        Key("attn_logit_softcapping", "softcap", 50.0),
        Key("final_logit_softcapping", "logits_softcap", 30.0),
        Alternating(),
        vocab_size=256000,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    ),
    places={
        **places("decoder"),
        "query_width": _query_width,
        "softcap": "decoder.blocks.0.attention.softcap",
        "logits_softcap": "head.softcap",
    },
    harmless={
        "hidden_act": ANY,  # repeated beside hidden_activation, which counts
        "use_bidirectional_attention": False,
        "cache_implementation": ANY,
    },
    names=GEMMA2_NAMES,
)
