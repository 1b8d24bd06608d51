"""MPT (MosaicML 2023): a decoder with ALiBi and without any biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...nn.attention.multi_head import Attention
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
from ..hub.family import Family, Table, at
from ..hub.keys import ANY, Config, Key, check_claimed, filled
from ..hub.names import Row
from ..hub.transforms import Joined
from .classes import decoders, scores
from .places import places


def mpt(
    *,
    vocab_size: int = 50368,
    d_model: int = 2048,
    n_layers: int = 24,
    n_heads: int = 16,
    dropout: float = 0.0,
    eps: float = 1e-5,
    scale: float | None = None,
    bias_max: float = 8.0,
    tied: bool = True,
    position: Position | None = None,
    max_positions: int | None = 2048,
    head: bool = True,
) -> Transformer:
    """A decoder-only language model. `bias_max` is ALiBi's; `dropout` acts on attention weights and sublayers alike."""
    norm = LayerNorm(eps=eps, bias=False)
    block = Block(
        attention=Attention(n_heads=n_heads, bias=False, pattern=causal(), dropout=dropout, scale=scale),
        feedforward=FeedForward(d_ff=4 * d_model, activation="gelu", bias=False),
        norm=norm,
        dropout=dropout,
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        decoder=Stack(position=position or ALiBi(bias_max=bias_max), blocks=(block,) * n_layers, norm=norm),
        head=LanguageModel(tied=tied) if head else None,
        initialization=Normal(scale_residual=False),
    )


SIZES: dict[str, dict[str, Any]] = {
    "mpt-7b": {"vocab_size": 50432, "d_model": 4096, "n_layers": 32, "n_heads": 32},
    "mpt-30b": {"vocab_size": 50432, "d_model": 7168, "n_layers": 48, "n_heads": 64, "max_positions": 8192},
}

ATTENTION = (
    Key("attn_pdrop", "dropout", 0.0),
    Key("softmax_scale", "scale", None),
    Key("alibi_bias_max", "bias_max", 8),
)
ATTENTION_HARMLESS: dict[str, Any] = {
    "attn_type": "multihead_attention",
    "attn_impl": ANY,  # which kernel
    "alibi": True,
    "clip_qkv": None,
    "prefix_lm": False,
    "qk_ln": False,
    "attn_uses_sequence_id": False,
}


@dataclass(frozen=True)
class Inside:
    """A size that a key inside `attn_config` says."""

    key: Key

    @property
    def size(self) -> str:
        return self.key.size

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"attn_config": {}}

    def read(self, config: Config) -> object:
        inside = config["attn_config"] or {}
        try:
            check_claimed(inside, ATTENTION, ATTENTION_HARMLESS)
        except ValueError as error:
            raise ValueError(f"attn_config: {error}") from None
        return self.key.read(filled(inside, ATTENTION))

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        inside = [key.write(sizes[key.size], sizes) for key in ATTENTION]
        return {"attn_config": {name: said for written in inside for name, said in written.items()}}


def _whole(value: float) -> float:
    """As an integer if it is one: the Hub takes these numbers for integers."""
    return int(value) if value == int(value) else value


def names(spec: Transformer) -> Table:
    """The rows; queries, keys and values are fused."""
    layer, block = "transformer.blocks.{i}", "decoder.blocks.{i}"
    return (
        Row("transformer.wte.weight", "decoder.embedding.weight"),
        Row(f"{layer}.norm_1.weight", f"{block}.norm.attention.weight"),
        Row(f"{layer}.attn.Wqkv.weight", f"{block}.attention.[q,k,v].weight", Joined()),
        Row(f"{layer}.attn.out_proj.weight", f"{block}.attention.out.weight"),
        Row(f"{layer}.norm_2.weight", f"{block}.norm.feedforward.weight"),
        Row(f"{layer}.ffn.[up,down]_proj.weight", f"{block}.feedforward.[up,down].weight"),
        Row("transformer.norm_f.weight", "decoder.norm.weight"),
        Row("lm_head.weight", "head.weight"),
        scores(spec),
    )


FAMILY = Family(
    model_type="mpt",
    make=mpt,
    classes=decoders("Mpt"),
    prefix="transformer.",
    fields=(
        Key("vocab_size", "vocab_size", 50368),
        Key("d_model", "d_model", 2048, also=("hidden_size",)),
        Key("n_layers", "n_layers", 24, also=("num_hidden_layers",)),
        Key("n_heads", "n_heads", 16, also=("num_attention_heads",)),
        Key("layer_norm_epsilon", "eps", 1e-5),
        Key("max_seq_len", "max_positions", 2048),
        Key("tie_word_embeddings", "tied", True),
        *(Inside(key) for key in ATTENTION),
    ),
    places={
        **places("decoder"),
        "scale": "decoder.blocks.0.attention.scale",
        "bias_max": lambda spec: _whole(at(spec, "decoder.position.bias_max")),
        "dropout": lambda spec: _whole(at(spec, "decoder.blocks.0.dropout")),
    },
    harmless={
        "expansion_ratio": 4,
        "no_bias": True,
        "logit_scale": None,
        # Of the code that trained it.
        **dict.fromkeys(("emb_pdrop", "resid_pdrop", "embedding_fraction", "learned_pos_emb", "norm_type"), ANY),
        **dict.fromkeys(("init_device", "init_config", "verbose", "tokenizer_name"), ANY),
    },
    names=names,
)
