"""Llama (Touvron et al. 2023): a pre-norm decoder with RMSNorm, rotary positions and SwiGLU; base of many families."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ...nn.attention.multi_head import Attention
from ...nn.layers.feedforward import Activation, FeedForward, FeedForwardLayer
from ...nn.layers.norm import NoNorm, RMSNorm
from ...nn.models.block import Block
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.initialization import Normal
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.positions.absolute import NoPosition
from ...nn.positions.base import Position
from ...nn.positions.rotary import Rotary
from ..hub.family import Family
from ..hub.keys import ACTIVATIONS, Field, Key, changed
from ..hub.names import Row
from .classes import SCORE, decoders
from .places import places, sliding
from .rope import Rope


def llama(
    *,
    vocab_size: int = 32000,
    d_model: int = 4096,
    n_layers: int = 32,
    n_heads: int = 32,
    n_kv_heads: int | None = None,
    d_head: int | None = None,
    d_ff: int = 11008,
    activation: Activation = "silu",
    attention_bias: bool = False,
    out_bias: bool | None = None,
    feedforward_bias: bool = False,
    feedforwards: Sequence[FeedForwardLayer | None] | None = None,
    qk_norm: bool = False,
    qk_norm_over: Literal["head", "all"] = "head",
    placement: Literal["pre", "post", "res-post", "sandwich"] = "pre",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    eps: float = 1e-5,
    tied: bool = False,
    position: Position | None = None,
    unrotated: Sequence[int] = (),
    windows: Sequence[int | None] | int | None = None,
    max_positions: int | None = 4096,
    head: bool = True,
) -> Transformer:
    """A decoder-only language model in today's usual form.

    `windows` is the sliding window of every layer, or one for each (None: all that came before). `out_bias` is
    `attention_bias` by default. `feedforwards` has a layer for each block, None being the usual one of width `d_ff`.
    `unrotated` are the numbers of layers without positions.
    """
    norm = RMSNorm(eps=eps)
    usual = FeedForward(d_ff=d_ff, activation=activation, gated=True, bias=feedforward_bias)

    def block(window: int | None, feedforward: FeedForwardLayer | None, rotated: bool) -> Block:
        return Block(
            position=None if rotated else NoPosition(),
            attention=Attention(
                n_heads=n_heads,
                n_kv_heads=n_kv_heads,
                d_head=d_head,
                bias=attention_bias,
                out_bias=out_bias,
                pattern=sliding(window),
                dropout=attention_dropout,
                qk_norm=norm if qk_norm else NoNorm(),
                qk_norm_over=qk_norm_over,
            ),
            feedforward=feedforward or usual,
            norm=norm,
            placement=placement,
            dropout=dropout,
        )

    if windows is None or isinstance(windows, int):
        windows = (windows,) * n_layers
    feedforwards = feedforwards or (None,) * n_layers
    if not len(windows) == len(feedforwards) == n_layers:
        raise ValueError(
            f"there are {n_layers} layers, {len(windows)} windows and {len(feedforwards)} feedforwards; give one for each"
        )
    layers = [(*layer, i not in unrotated) for i, layer in enumerate(zip(windows, feedforwards, strict=True))]
    blocks = {layer: block(*layer) for layer in set(layers)}
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        decoder=Stack(position=position or Rotary(), blocks=tuple(blocks[layer] for layer in layers), norm=norm),
        head=LanguageModel(tied=tied) if head else None,
        initialization=Normal(scale_residual=False),
    )


SIZES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-2-7b": {},
    "llama-2-13b": {"d_model": 5120, "n_layers": 40, "n_heads": 40, "d_ff": 13824},
    "llama-3-8b": {
        "vocab_size": 128256,
        "n_kv_heads": 8,
        "d_ff": 14336,
        "position": Rotary(base=500000.0),
        "max_positions": 8192,
    },
}

FIELDS: tuple[Field, ...] = (
    Key("vocab_size", "vocab_size", 32000),
    Key("hidden_size", "d_model", 4096),
    Key("intermediate_size", "d_ff", 11008),
    Key("num_hidden_layers", "n_layers", 32),
    Key("num_attention_heads", "n_heads", 32),
    Key("num_key_value_heads", "n_kv_heads", None),
    Key("head_dim", "d_head", None),
    Key("hidden_act", "activation", "silu", ACTIVATIONS),
    Key("max_position_embeddings", "max_positions", 2048),
    Key("rms_norm_eps", "eps", 1e-6),
    Key("attention_dropout", "attention_dropout", 0.0),
    Key("tie_word_embeddings", "tied", False),
    Rope(),
)
"""The keys that Llama-like families share, with Llama's defaults."""

NAMES = (
    Row("model.embed_tokens.weight", "decoder.embedding.weight"),
    Row("model.layers.{i}.input_layernorm.weight", "decoder.blocks.{i}.norm.attention.weight"),
    Row("model.layers.{i}.self_attn.[q,k,v]_proj.*", "decoder.blocks.{i}.attention.[q,k,v].*"),
    Row("model.layers.{i}.self_attn.o_proj.*", "decoder.blocks.{i}.attention.out.*"),
    Row("model.layers.{i}.post_attention_layernorm.weight", "decoder.blocks.{i}.norm.feedforward.weight"),
    Row("model.layers.{i}.mlp.[gate,up,down]_proj.*", "decoder.blocks.{i}.feedforward.[gate,up,down].*"),
    Row("model.norm.weight", "decoder.norm.weight"),
    Row("lm_head.weight", "head.weight"),
    SCORE,
    Row("model.layers.{i}.self_attn.rotary_emb.inv_freq", ""),  # computed; in old files
)


FAMILY = Family(
    model_type="llama",
    make=llama,
    classes=decoders("Llama"),
    prefix="model.",
    fields=changed(FIELDS, Key("attention_bias", "attention_bias", False), Key("mlp_bias", "feedforward_bias", False)),
    places=places("decoder"),
    names=NAMES,
)
