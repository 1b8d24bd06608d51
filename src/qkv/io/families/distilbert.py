"""DistilBERT (Sanh et al. 2019): half of BERT's layers, no segments and no pooler."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...nn.models.heads.sequence import SequenceClassifier
from ..hub.family import Family
from ..hub.keys import ACTIVATIONS, ANY, Key
from ..hub.names import Row
from .bert import bert
from .classes import classifier, encoders, reading
from .places import places

distilbert = partial(bert, n_layers=6, token_types=0)

SIZES: dict[str, dict[str, Any]] = {"distilbert-base": {}}

_LAYER, _BLOCK = "distilbert.transformer.layer.{i}", "encoder.blocks.{i}"

FAMILY = Family(
    model_type="distilbert",
    make=distilbert,
    classes={
        **encoders("DistilBert", {"dropout": 0.1}, pooled=False),
        "DistilBertForSequenceClassification": classifier(
            SequenceClassifier(activation="relu"), {"seq_classif_dropout": 0.2}
        ),
    },
    prefix="distilbert.",
    fields=(
        Key("vocab_size", "vocab_size", 30522),
        Key("dim", "d_model", 768, also=("hidden_size",)),
        Key("n_layers", "n_layers", 6, also=("num_hidden_layers",)),
        Key("n_heads", "n_heads", 12, also=("num_attention_heads",)),
        Key("hidden_dim", "d_ff", 3072),
        Key("activation", "activation", "gelu", ACTIVATIONS),
        Key("dropout", "dropout", 0.1),
        Key("attention_dropout", "attention_dropout", 0.1),
        Key("max_position_embeddings", "max_positions", 512),
        Key("tie_word_embeddings", "tied", True),
    ),
    places=places("encoder"),
    harmless={
        "sinusoidal_pos_embds": ANY,  # how the table of positions began
        "qa_dropout": ANY,
        "seq_classif_dropout": ANY,
        "tie_weights_": ANY,
    },
    names=reading(
        (
            Row("distilbert.embeddings.word_embeddings.weight", "encoder.embedding.weight"),
            Row("distilbert.embeddings.position_embeddings.weight", "encoder.position.weight"),
            Row("distilbert.embeddings.LayerNorm.*", "encoder.embedding.norm.*"),
            Row(f"{_LAYER}.attention.[q,k,v,out]_lin.*", f"{_BLOCK}.attention.[q,k,v,out].*"),
            Row(f"{_LAYER}.sa_layer_norm.*", f"{_BLOCK}.norm.attention.*"),
            Row(f"{_LAYER}.ffn.lin1.*", f"{_BLOCK}.feedforward.up.*"),
            Row(f"{_LAYER}.ffn.lin2.*", f"{_BLOCK}.feedforward.down.*"),
            Row(f"{_LAYER}.output_layer_norm.*", f"{_BLOCK}.norm.feedforward.*"),
            Row("vocab_transform.*", "head.transform.dense.*"),
            Row("vocab_layer_norm.*", "head.transform.norm.*"),
            Row("vocab_projector.weight", "head.weight"),
            Row("vocab_projector.bias", "head.bias"),
            Row("pre_classifier.*", "head.dense.*"),
            Row("classifier.*", "head.out.*"),
        )
    ),
)
