"""ALBERT (Lan et al. 2020): BERT whose layers share their parameters, with narrow embeddings."""

from __future__ import annotations

from typing import Any

from ..hub.family import Class, Family
from ..hub.keys import ACTIVATIONS, ANY, Key, changed
from ..hub.names import Row
from ..layers.feedforward import Activation
from ..layers.norm import LayerNorm
from ..models.heads.sequence import SequenceClassifier
from ..models.heads.text import LanguageModel, Transform
from ..models.transformer import Transformer
from ..positions.base import Position
from .bert import FIELDS, PLACES, POOLED, PRETRAINING, bert
from .classes import readers, reading


def albert(
    *,
    vocab_size: int = 30000,
    embedding_size: int = 128,
    d_model: int = 768,
    n_layers: int = 12,
    groups: int = 1,
    n_heads: int = 12,
    d_ff: int = 3072,
    activation: Activation = "gelu-tanh",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    eps: float = 1e-12,
    token_types: int = 2,
    tied: bool = True,
    position: Position | None = None,
    max_positions: int = 512,
    head: bool = True,
    pooler: bool = False,
    labels: int = 0,
) -> Transformer:
    """BERT with `embedding_size` wide embeddings and layers in `groups` of neighbors, each of which shares one block."""
    if embedding_size == d_model:
        raise ValueError(f"embedding_size={embedding_size} has to be another than d_model, to which it is projected")
    if n_layers < groups:
        raise ValueError(f"{n_layers} layers can't be put into {groups} groups; give at most {n_layers}")
    spec = bert(
        vocab_size=vocab_size,
        d_model=d_model,
        n_layers=groups,
        n_heads=n_heads,
        d_ff=d_ff,
        activation=activation,
        dropout=dropout,
        attention_dropout=attention_dropout,
        eps=eps,
        token_types=token_types,
        position=position,
        max_positions=max_positions,
        head=False,
        pooler=pooler,
        labels=labels,
    )
    transform = Transform(activation=activation, norm=LayerNorm(eps=eps), width=embedding_size)
    return spec.replace(
        {
            "encoder.embedding.width": embedding_size,
            "encoder.order": tuple(i * groups // n_layers for i in range(n_layers)),
            "head": LanguageModel(tied=tied, bias=True, transform=transform) if head else None,
        }
    )


SIZES: dict[str, dict[str, Any]] = {
    "albert-base-v2": {},
    "albert-large-v2": {"d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096},
    "albert-xxlarge-v2": {"d_model": 4096, "n_heads": 64, "d_ff": 16384},
}

_LAYER, _BLOCK = "albert.encoder.albert_layer_groups.{i}.albert_layers.0", "encoder.blocks.{i}"

NAMES = (
    Row("albert.embeddings.word_embeddings.weight", "encoder.embedding.weight"),
    Row("albert.embeddings.position_embeddings.weight", "encoder.position.weight"),
    Row("albert.embeddings.token_type_embeddings.weight", "encoder.embedding.types"),
    Row("albert.embeddings.LayerNorm.*", "encoder.embedding.norm.*"),
    Row("albert.encoder.embedding_hidden_mapping_in.*", "encoder.embedding.project.*"),
    Row(f"{_LAYER}.attention.[query,key,value].*", f"{_BLOCK}.attention.[q,k,v].*"),
    Row(f"{_LAYER}.attention.dense.*", f"{_BLOCK}.attention.out.*"),
    Row(f"{_LAYER}.attention.LayerNorm.*", f"{_BLOCK}.norm.attention.*"),
    Row(f"{_LAYER}.ffn.*", f"{_BLOCK}.feedforward.up.*"),
    Row(f"{_LAYER}.ffn_output.*", f"{_BLOCK}.feedforward.down.*"),
    Row(f"{_LAYER}.full_layer_layer_norm.*", f"{_BLOCK}.norm.feedforward.*"),
    Row("albert.pooler.*", "classification_head.dense.*"),
    Row("predictions.dense.*", "head.transform.dense.*"),
    Row("predictions.LayerNorm.*", "head.transform.norm.*"),
    Row("predictions.decoder.weight", "head.weight"),
    Row("predictions.bias", "head.bias"),
    Row("predictions.decoder.bias", "head.bias"),
    Row("sop_classifier.classifier.*", "classification_head.out.*"),
    Row("albert.pooler.*", "head.dense.*"),
    Row("classifier.*", "head.out.*"),
    Row("albert.embeddings.position_ids", ""),
)

DROPOUT = {"classifier_dropout_prob": 0.1}

FAMILY = Family(
    model_type="albert",
    make=albert,
    classes={
        "AlbertForMaskedLM": Class(),
        "AlbertForPreTraining": Class(PRETRAINING),
        "AlbertModel": Class(POOLED, bare=True, optional=("pooler",)),
        "AlbertForSequenceClassification": Class({"head": False}, head=SequenceClassifier(), dropout=DROPOUT),
        **readers("Albert", DROPOUT),
    },
    prefix="albert.",
    fields=(
        *changed(
            FIELDS,
            Key("vocab_size", "vocab_size", 30000),
            Key("hidden_size", "d_model", 4096),
            Key("num_attention_heads", "n_heads", 64),
            Key("intermediate_size", "d_ff", 16384),
            Key("hidden_act", "activation", "gelu_new", ACTIVATIONS),
            Key("hidden_dropout_prob", "dropout", 0.0),
            Key("attention_probs_dropout_prob", "attention_dropout", 0.0),
        ),
        Key("embedding_size", "embedding_size", 128),
        Key("num_hidden_groups", "groups", 1),
    ),
    places={
        **PLACES,
        "embedding_size": "encoder.embedding.width",
        "groups": lambda spec: len(spec.encoder.blocks),  # type: ignore[union-attr]
    },
    names=reading(NAMES),
    harmless={"position_embedding_type": "absolute", "inner_group_num": 1, "classifier_dropout_prob": ANY},
)
