"""BERT (Devlin et al. 2019): a bidirectional post-norm encoder that predicts masked tokens and the next sentence."""

from __future__ import annotations

from typing import Any

from ...nn.attention.multi_head import Attention
from ...nn.layers.embedding import Embedding
from ...nn.layers.feedforward import Activation, FeedForward
from ...nn.layers.norm import LayerNorm
from ...nn.models.block import Block
from ...nn.models.heads.language_model import LanguageModel, Transform
from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.initialization import Normal
from ...nn.models.stack import Stack
from ...nn.models.transformer import Transformer
from ...nn.positions.absolute import Learned
from ...nn.positions.base import Position
from ..hub.family import Class, Family
from ..hub.keys import ACTIVATIONS, Field, Key
from ..hub.names import Row
from .classes import BERTS_DROPOUT, encoders, reading
from .places import Place, places


def bert(
    *,
    vocab_size: int = 30522,
    d_model: int = 768,
    n_layers: int = 12,
    n_heads: int = 12,
    d_ff: int = 3072,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    eps: float = 1e-12,
    token_types: int = 2,
    tied: bool = True,
    position: Position | None = None,
    max_positions: int = 512,
    head: bool = True,
    pooler: bool = False,
    labels: int = 0,
) -> Transformer:
    """An encoder with a head for masked tokens, a pooler, and a classifier of `labels` sequence classes on top of it.

    Raises ValueError for labels without a pooler.
    """
    if labels and not pooler:
        raise ValueError(f"labels={labels}: the classifier of sequences reads what a pooler gives; set pooler=true")
    norm = LayerNorm(eps=eps)
    block = Block(
        attention=Attention(n_heads=n_heads, dropout=attention_dropout),
        feedforward=FeedForward(d_ff=d_ff, activation=activation),
        norm=norm,
        placement="post",
        dropout=dropout,
    )
    return Transformer(
        vocab_size=vocab_size,
        d_model=d_model,
        max_positions=max_positions,
        encoder=Stack(
            embedding=Embedding(norm=norm, dropout=dropout, token_types=token_types),
            position=position or Learned(),
            blocks=(block,) * n_layers,
        ),
        head=LanguageModel(tied=tied, bias=True, transform=Transform(activation=activation, norm=norm))
        if head
        else None,
        classification_head=SequenceClassifier(labels=labels or None) if pooler else None,
        initialization=Normal(scale_residual=False),
    )


PRETRAINING = {"pooler": True, "labels": 2}

SIZES: dict[str, dict[str, Any]] = {
    "bert-base": {**PRETRAINING},
    "bert-large": {**PRETRAINING, "d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096},
}


def legacy(table: tuple[Row, ...]) -> tuple[Row, ...]:
    """The rows of each LayerNorm as the first checkpoints named its weight and bias, gamma and beta."""
    return tuple(
        Row(row.theirs.replace(".*", old), row.ours.replace(".*", new))
        for row in table
        if row.theirs.endswith("LayerNorm.*")
        for old, new in ((".gamma", ".weight"), (".beta", ".bias"))
    )


def body(prefix: str) -> tuple[Row, ...]:
    """The names of the encoder's and the pooler's tensors."""
    layer, block = f"{prefix}.encoder.layer.{{i}}", "encoder.blocks.{i}"
    rows = (
        Row(f"{prefix}.embeddings.word_embeddings.weight", "encoder.embedding.weight"),
        Row(f"{prefix}.embeddings.position_embeddings.weight", "encoder.position.weight"),
        Row(f"{prefix}.embeddings.token_type_embeddings.weight", "encoder.embedding.types"),
        Row(f"{prefix}.embeddings.LayerNorm.*", "encoder.embedding.norm.*"),
        Row(f"{layer}.attention.self.[query,key,value].*", f"{block}.attention.[q,k,v].*"),
        Row(f"{layer}.attention.output.dense.*", f"{block}.attention.out.*"),
        Row(f"{layer}.attention.output.LayerNorm.*", f"{block}.norm.attention.*"),
        Row(f"{layer}.intermediate.dense.*", f"{block}.feedforward.up.*"),
        Row(f"{layer}.output.dense.*", f"{block}.feedforward.down.*"),
        Row(f"{layer}.output.LayerNorm.*", f"{block}.norm.feedforward.*"),
        Row(f"{prefix}.pooler.dense.*", "classification_head.dense.*"),
        Row(f"{prefix}.embeddings.position_ids", ""),
    )
    return (*rows, *legacy(rows))


_PREDICTIONS = (
    Row("cls.predictions.transform.dense.*", "head.transform.dense.*"),
    Row("cls.predictions.transform.LayerNorm.*", "head.transform.norm.*"),
    Row("cls.predictions.decoder.weight", "head.weight"),
    Row("cls.predictions.bias", "head.bias"),
    Row("cls.predictions.decoder.bias", "head.bias"),
    Row("cls.seq_relationship.*", "classification_head.out.*"),
)
PREDICTIONS = (*_PREDICTIONS, *legacy(_PREDICTIONS))
"""The names of the heads for masked tokens and for the next sentence."""


def _segments(spec: Transformer) -> int:
    """The number of token types. Raises AttributeError for none, which is DistilBERT."""
    embedding = None if spec.encoder is None else spec.encoder.embedding
    if not isinstance(embedding, Embedding) or not embedding.token_types:
        raise AttributeError("no segments")
    return embedding.token_types


PLACES: dict[str, Place] = {**places("encoder"), "token_types": _segments}

FIELDS: tuple[Field, ...] = (
    Key("vocab_size", "vocab_size", 30522),
    Key("hidden_size", "d_model", 768),
    Key("num_hidden_layers", "n_layers", 12),
    Key("num_attention_heads", "n_heads", 12),
    Key("intermediate_size", "d_ff", 3072),
    Key("hidden_act", "activation", "gelu", ACTIVATIONS),
    Key("hidden_dropout_prob", "dropout", 0.1),
    Key("attention_probs_dropout_prob", "attention_dropout", 0.1),
    Key("max_position_embeddings", "max_positions", 512),
    Key("type_vocab_size", "token_types", 2),
    Key("layer_norm_eps", "eps", 1e-12),
    Key("tie_word_embeddings", "tied", True),
)

FAMILY = Family(
    model_type="bert",
    make=bert,
    classes={
        **encoders("Bert", BERTS_DROPOUT),
        "BertForPreTraining": Class(PRETRAINING),
        "BertForNextSentencePrediction": Class({**PRETRAINING, "head": False}),
    },
    prefix="bert.",
    fields=FIELDS,
    places=PLACES,
    names=reading(
        (*body("bert"), *PREDICTIONS, Row("bert.pooler.dense.*", "head.dense.*"), Row("classifier.*", "head.out.*"))
    ),
    harmless={"position_embedding_type": "absolute"},
)
