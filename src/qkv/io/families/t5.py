"""T5 (Raffel et al. 2020), v1.1, Flan and mT5: relative buckets, unscaled scores, RMSNorm, no biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from ...core.spec import brief, nearest
from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.norm import RMSNorm
from ...nn.models.block import Block
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.initialization import T5Normal
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.patterns.basic import causal
from ...nn.positions.bias import T5Buckets
from ..hub.family import Class, Family, at
from ..hub.keys import ANY, Config, Field, Key, changed
from ..hub.names import Row
from .classes import classifier, dense
from .places import Place

Kind = tuple[Activation, bool]  # the activation, and whether it gates


def t5(
    *,
    vocab_size: int = 32128,
    d_model: int = 512,
    d_head: int = 64,
    n_heads: int = 8,
    d_ff: int = 2048,
    n_layers: int = 6,
    encoder_layers: int | None = None,
    decoder_layers: int | None = None,
    kind: Kind = ("relu", False),
    dropout: float = 0.1,
    eps: float = 1e-6,
    buckets: int = 32,
    max_distance: int = 128,
    tied: bool = True,
    scale: Literal["rsqrt", "none"] = "rsqrt",
    head: bool = True,
    decoder: bool = True,
) -> Transformer:
    """Return an encoder–decoder with one table for source and target, and for the output if `tied`. With decoder=False,
    return the encoder alone.

    `encoder_layers` defaults to `n_layers`, `decoder_layers` to the encoder's.

    v1.1 has kind=("gelu-tanh", True), tied=False and scale="none": what meets the vocabulary is not multiplied by
    1/√d_model.
    """
    norm = RMSNorm(eps=eps)
    attention = Attention(n_heads=n_heads, d_head=d_head, bias=False, scale=1.0, dropout=dropout)
    block = Block(
        attention=attention,
        feedforward=FeedForward(d_ff=d_ff, activation=kind[0], gated=kind[1], bias=False, dropout=dropout),
        norm=norm,
        dropout=dropout,
    )

    def stack(block: Block, layers: int) -> Stack:
        return Stack(
            embedding=Embedding(dropout=dropout),
            position=T5Buckets(buckets=buckets, max_distance=max_distance),
            blocks=(block,) * layers,
            norm=norm,
        )

    crossing = block.replace({"attention.pattern": causal(), "cross": attention})
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        encoder=stack(block, encoder_layers or n_layers),
        decoder=stack(crossing, decoder_layers or encoder_layers or n_layers) if decoder else None,
        head=LanguageModel(tied=tied, scale=scale) if head and decoder else None,
        initialization=T5Normal(),
    )


V1_1: dict[str, Any] = {"kind": ("gelu-tanh", True), "tied": False, "scale": "none"}

# Raffel et al. (2020), §3.7; v1.1, Flan and mT5 (Xue et al. 2021) share five other sizes.
_V1_1_SIZES: dict[str, dict[str, Any]] = {
    "small": {"n_heads": 6, "d_ff": 1024, "n_layers": 8},
    "base": {"d_model": 768, "n_heads": 12, "d_ff": 2048, "n_layers": 12},
    "large": {"d_model": 1024, "n_heads": 16, "d_ff": 2816, "n_layers": 24},
    "xl": {"d_model": 2048, "n_heads": 32, "d_ff": 5120, "n_layers": 24},
    "xxl": {"d_model": 4096, "n_heads": 64, "d_ff": 10240, "n_layers": 24},
}

SIZES: dict[str, dict[str, Any]] = {
    "t5-small": {},
    "t5-base": {"d_model": 768, "n_heads": 12, "d_ff": 3072, "n_layers": 12},
    "t5-large": {"d_model": 1024, "n_heads": 16, "d_ff": 4096, "n_layers": 24},
    "t5-3b": {"d_model": 1024, "n_heads": 32, "d_head": 128, "d_ff": 16384, "n_layers": 24},
    "t5-11b": {"d_model": 1024, "n_heads": 128, "d_head": 128, "d_ff": 65536, "n_layers": 24},
    **{f"t5-v1_1-{name}": {**V1_1, **sizes} for name, sizes in _V1_1_SIZES.items()},
    **{f"flan-t5-{name}": {**V1_1, **sizes} for name, sizes in _V1_1_SIZES.items()},
    **{f"mt5-{name}": {**V1_1, "vocab_size": 250112, **sizes} for name, sizes in _V1_1_SIZES.items()},
}


KINDS: dict[str, Kind] = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gelu_new": ("gelu-tanh", False),
    "silu": ("silu", False),
    "gated-gelu": ("gelu-tanh", True),
    "gated-silu": ("silu", True),
    "gated-relu": ("relu", True),
}


@dataclass(frozen=True)
class FeedForwardKind:
    """The field `kind`: `feed_forward_proj` is an activation, or "gated-" and one; gelu is exact only without a gate.
    `dense_act_fn` and `is_gated_act` replace its parts, as in transformers, which writes them too."""

    default: str = "relu"
    size: str = "kind"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"feed_forward_proj": self.default, "dense_act_fn": None, "is_gated_act": None}

    def read(self, config: Config) -> Kind:
        name = config["feed_forward_proj"]
        if name not in KINDS:
            raise ValueError(f"feed_forward_proj {brief(name)} is not built here; {nearest(name[:80], KINDS)}")
        act, gated = config["dense_act_fn"], config["is_gated_act"]
        kind = KINDS[name] if act is None else (KINDS[act][0] if act in KINDS else act, KINDS[name][1])
        kind = kind if gated is None else (kind[0], gated)
        if kind not in KINDS.values():
            raise ValueError(
                f"feed_forward_proj {brief(name)} with dense_act_fn {brief(act)} and is_gated_act {gated} is not built; "
                "correct the one that is wrong"
            )
        return kind

    def write(self, value: tuple[str, bool], sizes: Mapping[str, Any]) -> dict[str, Any]:
        names = [name for name, kind in KINDS.items() if kind == value]
        if not names:
            raise ValueError(f"feed_forward_proj has no {value}; {nearest(str(value), KINDS)}")
        act = "gelu_new" if names[0] == "gated-gelu" else names[0].removeprefix("gated-")
        return {"feed_forward_proj": names[0], "dense_act_fn": act, "is_gated_act": value[1]}


@dataclass(frozen=True)
class OutputScale:
    """The field `scale`: `scale_decoder_outputs` since transformers 5, before that whether tables are tied."""

    size: str = "scale"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"scale_decoder_outputs": None}

    def read(self, config: Config) -> str:
        scaled = config["scale_decoder_outputs"]
        if scaled is None:
            scaled = config["tie_word_embeddings"] is not False
        return "rsqrt" if scaled else "none"

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {"scale_decoder_outputs": value == "rsqrt"}


FIELDS: tuple[Field, ...] = (
    Key("vocab_size", "vocab_size", 32128),
    Key("d_model", "d_model", 512, also=("hidden_size",)),
    Key("d_kv", "d_head", 64, also=("head_dim",)),
    Key("num_heads", "n_heads", 8, also=("num_attention_heads",)),
    Key("d_ff", "d_ff", 2048),
    Key("num_layers", "encoder_layers", 6, also=("num_hidden_layers",)),
    Key("num_decoder_layers", "decoder_layers", None),
    Key("dropout_rate", "dropout", 0.1),
    Key("layer_norm_epsilon", "eps", 1e-6),
    Key("relative_attention_num_buckets", "buckets", 32),
    Key("relative_attention_max_distance", "max_distance", 128),
    Key("tie_word_embeddings", "tied", True),
    FeedForwardKind(),
    OutputScale(),
)

PLACES: dict[str, Place] = {
    "d_head": "encoder.blocks.0.attention.d_head",
    "n_heads": "encoder.blocks.0.attention.n_heads",
    "d_ff": "encoder.blocks.0.feedforward.d_ff",
    "encoder_layers": "encoder.n_layers",
    "decoder_layers": "decoder.n_layers",
    "kind": lambda spec: _kind(at(spec, "encoder.blocks.0.feedforward")),
    "dropout": "encoder.blocks.0.dropout",
    "eps": "encoder.norm.eps",
    "buckets": "encoder.position.buckets",
    "max_distance": "encoder.position.max_distance",
    "tied": "head.tied",
    "scale": "head.scale",
}


def _kind(feedforward: Any) -> Kind:
    return feedforward.activation, feedforward.gated


def _layers(stack: str, last: int) -> tuple[Row, ...]:
    layer, block = f"{stack}.block.{{i}}.layer", f"{stack}.blocks.{{i}}"
    return (
        Row(f"{layer}.0.SelfAttention.[q,k,v,o].weight", f"{block}.attention.[q,k,v,out].weight"),
        Row(f"{layer}.0.layer_norm.weight", f"{block}.norm.attention.weight"),
        Row(f"{layer}.1.EncDecAttention.[q,k,v,o].weight", f"{block}.cross.[q,k,v,out].weight"),
        Row(f"{layer}.1.layer_norm.weight", f"{block}.norm.cross.weight"),
        Row(f"{layer}.{last}.DenseReluDense.wi_0.weight", f"{block}.feedforward.gate.weight"),
        Row(f"{layer}.{last}.DenseReluDense.wi_1.weight", f"{block}.feedforward.up.weight"),
        Row(f"{layer}.{last}.DenseReluDense.wi.weight", f"{block}.feedforward.up.weight"),
        Row(f"{layer}.{last}.DenseReluDense.wo.weight", f"{block}.feedforward.down.weight"),
        Row(f"{layer}.{last}.layer_norm.weight", f"{block}.norm.feedforward.weight"),
        Row(f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", f"{stack}.position.weight"),
        Row(f"{stack}.final_layer_norm.weight", f"{stack}.norm.weight"),
    )


def names(spec: Transformer) -> tuple[Row, ...]:
    """The rows; the matrix into the hidden layer has another name if there is a gate, and all have under a classifier."""
    assert spec.encoder is not None
    gated = _kind(spec.encoder.blocks[0].feedforward)[1]
    rows = (
        Row("shared.weight", "encoder.embedding.weight"),
        Row("encoder.embed_tokens.weight", "encoder.embedding.weight"),
        Row("decoder.embed_tokens.weight", "decoder.embedding.weight"),
        *_layers("encoder", 1),
        *_layers("decoder", 2),
        Row("lm_head.weight", "head.weight"),
        # A table that some old files hold, and no computation ever used.
        Row("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", ""),
    )
    rows = tuple(row for row in rows if not row.theirs.endswith(".wi.weight" if gated else ".wi_1.weight"))
    if not isinstance(spec.head, SequenceClassifier):
        return rows
    return (*(Row(f"transformer.{row.theirs}", row.ours, row.how) for row in rows), *dense("classification_head"))


def classes(name: str) -> dict[str, Class]:
    return {
        f"{name}ForConditionalGeneration": Class(),
        f"{name}Model": Class({"head": False}),
        f"{name}EncoderModel": Class({"head": False, "decoder": False}, alone=True),
        f"{name}ForSequenceClassification": classifier(SequenceClassifier(pool="last"), {"classifier_dropout": 0.0}),
    }


FAMILY = Family(
    model_type="t5",
    make=t5,
    classes=classes("T5"),
    is_encoder_decoder=True,
    fields=FIELDS,
    places=PLACES,
    harmless={"initializer_factor": ANY, "n_positions": ANY, "output_past": ANY},
    names=names,
)

MT5 = replace(
    FAMILY,
    model_type="mt5",
    make=partial(t5, vocab_size=250112, n_heads=6, d_ff=1024, n_layers=8, **V1_1),
    classes=classes("MT5"),
    fields=changed(
        FIELDS,
        FeedForwardKind("gated-gelu"),
        without=("scale",),  # never scaled
        vocab_size=250112,
        num_heads=6,
        d_ff=1024,
        num_layers=8,
    ),
    harmless={**FAMILY.harmless, "scale_decoder_outputs": ANY},
)
