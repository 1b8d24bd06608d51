"""BLOOM (BigScience 2022): a decoder with ALiBi and a norm after its embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.spec import brief
from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.layers.feedforward import FeedForward
from ...nn.layers.norm import LayerNorm
from ...nn.models.block import Block
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.initialization import Normal
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import causal
from ...nn.positions.base import Position
from ...nn.positions.bias import ALiBi
from ..hub.family import Family, Table
from ..hub.keys import ANY, Config, Key
from ..hub.names import Row
from ..hub.transforms import Grouped
from .classes import decoders, scores
from .places import heads, places


def bloom(
    *,
    vocab_size: int = 250880,
    d_model: int = 64,
    n_layers: int = 2,
    n_heads: int = 8,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    eps: float = 1e-5,
    tied: bool = True,
    position: Position | None = None,
    head: bool = True,
) -> Transformer:
    """A decoder-only language model of any length."""
    norm = LayerNorm(eps=eps)
    block = Block(
        attention=Attention(n_heads=n_heads, pattern=causal(), dropout=attention_dropout),
        feedforward=FeedForward(d_ff=4 * d_model, activation="gelu-tanh"),
        norm=norm,
        dropout=dropout,
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        decoder=Stack(
            embedding=Embedding(norm=norm), position=position or ALiBi(), blocks=(block,) * n_layers, norm=norm
        ),
        head=LanguageModel(tied=tied) if head else None,
        initialization=Normal(scale_residual=False),
    )


SIZES: dict[str, dict[str, Any]] = {
    "bloom-560m": {"d_model": 1024, "n_layers": 24, "n_heads": 16},
    "bloom-7b1": {"d_model": 4096, "n_layers": 30, "n_heads": 32},
}


def names(spec: Transformer) -> Table:
    """The rows; queries, keys and values are fused head by head."""
    assert spec.decoder is not None
    layer, block = "transformer.h.{i}", "decoder.blocks.{i}"
    n_heads = heads(spec.decoder, spec.d_model)[0]
    return (
        Row("transformer.word_embeddings.weight", "decoder.embedding.weight"),
        Row("transformer.word_embeddings_layernorm.*", "decoder.embedding.norm.*"),
        Row(f"{layer}.input_layernorm.*", f"{block}.norm.attention.*"),
        Row(f"{layer}.self_attention.query_key_value.*", f"{block}.attention.[q,k,v].*", Grouped(n_heads)),
        Row(f"{layer}.self_attention.dense.*", f"{block}.attention.out.*"),
        Row(f"{layer}.post_attention_layernorm.*", f"{block}.norm.feedforward.*"),
        Row(f"{layer}.mlp.dense_h_to_4h.*", f"{block}.feedforward.up.*"),
        Row(f"{layer}.mlp.dense_4h_to_h.*", f"{block}.feedforward.down.*"),
        Row("transformer.ln_f.*", "decoder.norm.*"),
        Row("lm_head.weight", "head.weight"),
        scores(spec),
    )


class Layers(Key):
    """The number of layers. With `slow_but_exact`, transformers adds up `pretraining_tp` slices of two products, and leaves
    out their biases."""

    @property
    def keys(self) -> Mapping[str, Any]:
        return {**super().keys, "slow_but_exact": False, "pretraining_tp": 1}

    def read(self, config: Config) -> object:
        if config["slow_but_exact"] and config["pretraining_tp"] != 1:
            raise ValueError(
                f"slow_but_exact with pretraining_tp {brief(config['pretraining_tp'])} is not built here: it leaves out "
                "biases; set slow_but_exact to false to add them"
            )
        return super().read(config)


FAMILY = Family(
    model_type="bloom",
    make=bloom,
    classes=decoders("Bloom"),
    prefix="transformer.",
    fields=(
        Key("vocab_size", "vocab_size", 250880),
        Key("hidden_size", "d_model", 64, also=("n_embed",)),
        Layers("n_layer", "n_layers", 2, also=("num_hidden_layers",)),
        Key("n_head", "n_heads", 8, also=("num_attention_heads",)),
        Key("hidden_dropout", "dropout", 0.0),
        Key("attention_dropout", "attention_dropout", 0.0),
        Key("layer_norm_epsilon", "eps", 1e-5),
        Key("tie_word_embeddings", "tied", True),
    ),
    places=places("decoder"),
    harmless={
        "apply_residual_connection_post_layernorm": False,
        # Of the code that trained it.
        **dict.fromkeys(("offset_alibi", "seq_length", "skip_bias_add", "skip_bias_add_qkv", "unk_token_id"), ANY),
        **dict.fromkeys(("attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion"), ANY),
    },
    names=names,
)
