"""Falcon (Almazrouei et al. 2023): a decoder with few key-value heads and its two sublayers side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...core.spec import brief
from ...nn.attention.multi_head import Attention
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.norm import LayerNorm
from ...nn.models.block import Block
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.initialization import Normal
from ...nn.models.placement import Parallel
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import causal
from ...nn.positions.base import Position
from ...nn.positions.bias import ALiBi
from ...nn.positions.rotary import Rotary
from ..hub.family import Family, Table
from ..hub.keys import ACTIVATIONS, ANY, Config, Key
from ..hub.names import Row
from ..hub.transforms import Grouped
from .classes import decoders, scores
from .places import heads, places
from .rope import Rope

Branches = Literal["sequential", "one-norm", "two-norms"]


def falcon(
    *,
    vocab_size: int = 65024,
    d_model: int = 4544,
    n_layers: int = 32,
    n_heads: int = 71,
    n_kv_heads: int | None = 1,
    d_ff: int | None = None,
    activation: Activation = "gelu",
    bias: bool = False,
    branches: Branches = "one-norm",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    eps: float = 1e-5,
    tied: bool = True,
    position: Position | None = None,
    max_positions: int | None = 2048,
    head: bool = True,
) -> Transformer:
    """A decoder-only language model. `d_ff` is 4 · d_model by default.

    `branches`: attention and feed-forward layer one after the other ("sequential"), or side by side after one norm
    (Falcon 7B) or after one for each (40B).
    """
    norm = LayerNorm(eps=eps)
    block = Block(
        attention=Attention(
            n_heads=n_heads, n_kv_heads=n_kv_heads, bias=bias, pattern=causal(), dropout=attention_dropout
        ),
        feedforward=FeedForward(d_ff=d_ff or 4 * d_model, activation=activation, bias=bias),
        norm=norm,
        placement="pre" if branches == "sequential" else "parallel",
        shared_norm=branches == "one-norm",
        dropout=dropout,
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        decoder=Stack(position=position or Rotary(), blocks=(block,) * n_layers, norm=norm),
        head=LanguageModel(tied=tied) if head else None,
        initialization=Normal(scale_residual=False),
    )


def scaled_alibi(d_head: int) -> ALiBi:
    """Falcon's: added before scores are divided by √d_head, and made in bfloat16 position by position."""
    return ALiBi(scale=d_head**-0.5, precision="bfloat16")


SIZES: dict[str, dict[str, Any]] = {
    "falcon-7b": {},
    "falcon-40b": {"d_model": 8192, "n_layers": 60, "n_heads": 128, "n_kv_heads": 8, "branches": "two-norms"},
    "falcon-rw-1b": {
        "vocab_size": 50304,
        "d_model": 2048,
        "n_layers": 24,
        "n_heads": 32,
        "n_kv_heads": None,
        "bias": True,
        "branches": "sequential",
        "position": scaled_alibi(64),
    },
}


@dataclass(frozen=True)
class SharedHeads:
    """The field `n_kv_heads`: `num_kv_heads` in the new architecture; in the old one, one or as many as there are heads."""

    size: str = "n_kv_heads"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"num_kv_heads": None, "multi_query": True, "new_decoder_architecture": False}

    def read(self, config: Config) -> int | None:
        if config["new_decoder_architecture"]:
            n_kv_heads: int | None = config["num_kv_heads"]
            return n_kv_heads
        return 1 if config["multi_query"] else None

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        n_heads = sizes["n_heads"]
        count = value or n_heads
        new = sizes["branches"] == "two-norms" or count not in (1, n_heads)
        if new and sizes["branches"] == "sequential":
            raise ValueError(f"num_kv_heads={count} goes with layers side by side, and this model's follow one another")
        return {"num_kv_heads": count, "multi_query": count == 1, "new_decoder_architecture": new}


@dataclass(frozen=True)
class SideBySide:
    """The field `branches`, by the architecture, `parallel_attn` and the number of norms."""

    size: str = "branches"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"parallel_attn": True, "num_ln_in_parallel_attn": None}

    def read(self, config: Config) -> Branches:
        new, parallel, norms = (
            config[key] for key in ("new_decoder_architecture", "parallel_attn", "num_ln_in_parallel_attn")
        )
        if norms not in (None, 1, 2) or (new and not parallel) or (not new and parallel and norms == 2):
            raise ValueError(
                f"num_ln_in_parallel_attn={norms} with new_decoder_architecture={new} and parallel_attn={parallel} is "
                "not built here; two norms go with the new architecture, and that with parallel_attn"
            )
        if not parallel:
            return "sequential"
        return "two-norms" if new and norms != 1 else "one-norm"

    def write(self, value: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
        norms = {"sequential": None, "one-norm": 1, "two-norms": 2}[value]
        return {"parallel_attn": value != "sequential", "num_ln_in_parallel_attn": norms}


class RopeOrAlibi(Rope):
    """The field `position`: ALiBi if `alibi` says so, else rotary."""

    @property
    def keys(self) -> Mapping[str, Any]:
        return {**super().keys, "alibi": False}

    def read(self, config: Config) -> Position:
        if config["alibi"]:
            return scaled_alibi(config["hidden_size"] // config["num_attention_heads"])
        return super().read(config)

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(value, ALiBi):
            return {"alibi": False, **super().write(value, sizes)}
        wanted = scaled_alibi(sizes["d_model"] // sizes["n_heads"])
        if value != wanted:
            raise ValueError(f"its ALiBi is {brief(wanted)}, and this model's {brief(value)}")
        return {"alibi": True}


def _branches(spec: Transformer) -> Branches:
    block = spec.output.blocks[0]
    if not isinstance(block.placement, Parallel):
        return "sequential"
    return "one-norm" if block.shared_norm else "two-norms"


def names(spec: Transformer) -> Table:
    """The rows; the queries of a group are fused with the key and value that they share."""
    assert spec.decoder is not None
    layer, block = "transformer.h.{i}", "decoder.blocks.{i}"
    two = _branches(spec) == "two-norms"
    groups = heads(spec.decoder, spec.d_model)[1]
    return (
        Row("transformer.word_embeddings.weight", "decoder.embedding.weight"),
        Row(f"{layer}.{'ln_attn' if two else 'input_layernorm'}.*", f"{block}.norm.attention.*"),
        Row(f"{layer}.{'ln_mlp' if two else 'post_attention_layernorm'}.*", f"{block}.norm.feedforward.*"),
        Row(f"{layer}.self_attention.query_key_value.*", f"{block}.attention.[q,k,v].*", Grouped(groups)),
        Row(f"{layer}.self_attention.dense.*", f"{block}.attention.out.*"),
        Row(f"{layer}.mlp.dense_h_to_4h.*", f"{block}.feedforward.up.*"),
        Row(f"{layer}.mlp.dense_4h_to_h.*", f"{block}.feedforward.down.*"),
        Row("transformer.ln_f.*", "decoder.norm.*"),
        Row("lm_head.weight", "head.weight"),
        scores(spec),
        Row(f"{layer}.self_attention.rotary_emb.inv_freq", ""),  # computed; in old files
    )


FAMILY = Family(
    model_type="falcon",
    make=falcon,
    classes=decoders("Falcon"),
    prefix="transformer.",
    fields=(
        Key("vocab_size", "vocab_size", 65024),
        Key("hidden_size", "d_model", 4544, also=("n_embed",)),
        Key("num_hidden_layers", "n_layers", 32, also=("n_layer",)),
        Key("num_attention_heads", "n_heads", 71, also=("n_head",)),
        Key("ffn_hidden_size", "d_ff", None),
        Key("activation", "activation", "gelu", ACTIVATIONS),
        Key("bias", "bias", False),
        Key("hidden_dropout", "dropout", 0.0),
        Key("attention_dropout", "attention_dropout", 0.0),
        Key("layer_norm_epsilon", "eps", 1e-5),
        Key("max_position_embeddings", "max_positions", 2048),
        Key("tie_word_embeddings", "tied", True),
        SharedHeads(),
        SideBySide(),
        RopeOrAlibi(),
    ),
    places={**places("decoder"), "bias": "decoder.blocks.0.attention.bias", "branches": _branches},
    harmless={"apply_residual_connection_post_layernorm": False, "n_head_kv": ANY},
    names=names,
)
