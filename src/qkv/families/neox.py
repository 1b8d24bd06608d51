"""GPT-NeoX and Pythia (Black et al. 2022): partial rotary positions, and attention beside the feed-forward layer."""

from __future__ import annotations

from typing import Any

from ..attention.multi_head import Attention
from ..hub.family import Family, Table
from ..hub.keys import ACTIVATIONS, ANY, Key
from ..hub.names import Row
from ..hub.transforms import Grouped
from ..layers.embedding import Embedding
from ..layers.feedforward import Activation, FeedForward
from ..layers.norm import LayerNorm
from ..models.block import Block
from ..models.heads.text import LanguageModel
from ..models.initialization import Normal
from ..models.stack import Stack
from ..models.transformer import Transformer
from ..patterns.basic import causal
from ..positions.base import Position
from ..positions.rotary import Rotary
from .classes import decoders, scores
from .places import heads, places
from .rope import Rope


def neox(
    *,
    vocab_size: int = 50432,
    d_model: int = 6144,
    n_layers: int = 44,
    n_heads: int = 64,
    d_ff: int = 24576,
    activation: Activation = "gelu",
    attention_bias: bool = True,
    parallel: bool = True,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    eps: float = 1e-5,
    tied: bool = False,
    position: Position | None = None,
    max_positions: int = 2048,
    head: bool = True,
) -> Transformer:
    """A decoder-only language model. Not `parallel`, it is GPT-2 with rotary positions."""
    norm = LayerNorm(eps=eps)
    block = Block(
        attention=Attention(n_heads=n_heads, bias=attention_bias, pattern=causal(), dropout=attention_dropout),
        feedforward=FeedForward(d_ff=d_ff, activation=activation),
        norm=norm,
        placement="parallel" if parallel else "pre",
        dropout=dropout,
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        decoder=Stack(
            embedding=Embedding(dropout=dropout),
            position=position or Rotary(fraction=0.25),
            blocks=(block,) * n_layers,
            norm=norm,
        ),
        head=LanguageModel(tied=tied) if head else None,
        initialization=Normal(),
    )


SIZES: dict[str, dict[str, Any]] = {
    "gpt-neox-20b": {},
    "pythia-160m": {"vocab_size": 50304, "d_model": 768, "n_layers": 12, "n_heads": 12, "d_ff": 3072},
}


def names(spec: Transformer) -> Table:
    """The rows; queries, keys and values are fused head by head."""
    assert spec.decoder is not None
    layer, block = "gpt_neox.layers.{i}", "decoder.blocks.{i}"
    n_heads = heads(spec.decoder, spec.d_model)[0]
    return (
        Row("gpt_neox.embed_in.weight", "decoder.embedding.weight"),
        Row(f"{layer}.input_layernorm.*", f"{block}.norm.attention.*"),
        Row(f"{layer}.post_attention_layernorm.*", f"{block}.norm.feedforward.*"),
        Row(f"{layer}.attention.query_key_value.*", f"{block}.attention.[q,k,v].*", Grouped(n_heads)),
        Row(f"{layer}.attention.dense.*", f"{block}.attention.out.*"),
        Row(f"{layer}.mlp.dense_h_to_4h.*", f"{block}.feedforward.up.*"),
        Row(f"{layer}.mlp.dense_4h_to_h.*", f"{block}.feedforward.down.*"),
        Row("gpt_neox.final_layer_norm.*", "decoder.norm.*"),
        Row("embed_out.weight", "head.weight"),
        Row("lm_head.weight", "head.weight"),  # what transformers 5 calls it in memory
        scores(spec),
        Row(f"{layer}.attention.bias", ""),  # masks and tables, in old files
        Row(f"{layer}.attention.masked_bias", ""),
        Row(f"{layer}.attention.rotary_emb.inv_freq", ""),
    )


FAMILY = Family(
    model_type="gpt_neox",
    make=neox,
    classes=decoders("GPTNeoX", dropout={"classifier_dropout": 0.1}),
    prefix="gpt_neox.",
    fields=(
        Key("vocab_size", "vocab_size", 50432),
        Key("hidden_size", "d_model", 6144),
        Key("num_hidden_layers", "n_layers", 44),
        Key("num_attention_heads", "n_heads", 64),
        Key("intermediate_size", "d_ff", 24576),
        Key("hidden_act", "activation", "gelu", ACTIVATIONS),
        Key("attention_bias", "attention_bias", True),
        Key("use_parallel_residual", "parallel", True),
        Key("hidden_dropout", "dropout", 0.0),
        Key("attention_dropout", "attention_dropout", 0.0),
        Key("layer_norm_eps", "eps", 1e-5),
        Key("max_position_embeddings", "max_positions", 2048),
        Key("tie_word_embeddings", "tied", False),
        Rope(fraction=0.25, theta_key="rotary_emb_base", fraction_key="rotary_pct"),
    ),
    places={
        **places("decoder"),
        "parallel": lambda spec: spec.decoder.blocks[0].placement.kind == "parallel",  # type: ignore[union-attr]
    },
    harmless={"rope_theta": ANY, "partial_rotary_factor": ANY},  # repeated beside the family's own keys
    names=names,
)
