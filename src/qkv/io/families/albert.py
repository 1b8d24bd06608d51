"""ALBERT (Lan et al. 2020): BERT whose layers share their parameters, with narrow embeddings."""

from __future__ import annotations

from typing import Any

from ...nn.models.transformer import Transformer
from ..hub.family import Class, Family, at
from ..hub.keys import ANY, Key, changed
from ..hub.names import Row
from .bert import FIELDS, PLACES, PRETRAINING, bert
from .classes import Dropout, encoders, reading
from .factories import based_on


@based_on(bert, vocab_size=30000, activation="gelu-tanh", dropout=0.0, attention_dropout=0.0)
def albert(*, embedding_size: int = 128, groups: int = 1, **sizes: Any) -> Transformer:
    """BERT with `embedding_size` wide embeddings and layers in `groups` of neighbors, each of which shares one block."""
    d_model, n_layers = sizes["d_model"], sizes["n_layers"]
    if embedding_size == d_model:
        raise ValueError(f"embedding_size={embedding_size} has to be another than d_model, to which it is projected")
    if n_layers < groups:
        raise ValueError(f"{n_layers} layers can't be put into {groups} groups; give at most {n_layers}")
    spec = bert(**{**sizes, "n_layers": groups})
    changes: dict[str, Any] = {
        "encoder.embedding.width": embedding_size,
        "encoder.order": tuple(i * groups // n_layers for i in range(n_layers)),
    }
    return spec.replace({**changes, "head.transform.width": embedding_size} if sizes["head"] else changes)


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

DROPOUT: Dropout = {"classifier_dropout_prob": 0.1}

FAMILY = Family(
    model_type="albert",
    make=albert,
    classes={**encoders("Albert", DROPOUT), "AlbertForPreTraining": Class(PRETRAINING)},
    prefix="albert.",
    fields=changed(
        FIELDS,
        Key("embedding_size", "embedding_size", 128),
        Key("num_hidden_groups", "groups", 1),
        vocab_size=30000,
        hidden_size=4096,
        num_attention_heads=64,
        intermediate_size=16384,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    places={
        **PLACES,
        "embedding_size": "encoder.embedding.width",
        "groups": lambda spec: len(at(spec, "encoder.blocks")),
    },
    names=reading(NAMES),
    harmless={"position_embedding_type": "absolute", "inner_group_num": 1, "classifier_dropout_prob": ANY},
)
