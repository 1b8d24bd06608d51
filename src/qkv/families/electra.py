"""ELECTRA (Clark et al. 2020): BERT with narrow embeddings, trained to tell replaced tokens from real ones."""

from __future__ import annotations

from typing import Any, Literal

from ..hub.family import Class, Family, Table
from ..hub.keys import ANY, Key, changed
from ..hub.names import Row
from ..layers.feedforward import Activation
from ..layers.norm import LayerNorm
from ..models.heads.sequence import SequenceClassifier
from ..models.heads.text import LanguageModel, Span, TokenClassifier, Transform
from ..models.transformer import Transformer
from ..positions.base import Position
from .bert import FIELDS, NAMES, PLACES, bert
from .classes import ANSWERS, BERTS_DROPOUT, TAGS, dense


def electra(
    *,
    vocab_size: int = 30522,
    embedding_size: int = 128,
    d_model: int = 256,
    n_layers: int = 12,
    n_heads: int = 4,
    d_ff: int = 1024,
    activation: Activation = "gelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    eps: float = 1e-12,
    token_types: int = 2,
    tied: bool = True,
    position: Position | None = None,
    max_positions: int = 512,
    head: Literal["discriminator", "generator"] | None = "discriminator",
) -> Transformer:
    """BERT whose embeddings are `embedding_size` wide.

    The discriminator says of each token how likely it was replaced (log-odds), the generator predicts masked tokens.
    """
    spec = bert(
        vocab_size=vocab_size,
        d_model=d_model,
        n_layers=n_layers,
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
    )
    narrow = None if embedding_size == d_model else embedding_size
    heads = {
        None: None,
        "discriminator": TokenClassifier(transform=Transform(activation=activation, norm="none")),
        "generator": LanguageModel(
            tied=tied, bias=True, transform=Transform(activation="gelu", norm=LayerNorm(eps=eps), width=narrow)
        ),
    }
    return spec.replace({"encoder.embedding.width": narrow, "head": heads[head]})


SIZES: dict[str, dict[str, Any]] = {
    "electra-small": {},
    "electra-base": {"embedding_size": 768, "d_model": 768, "n_heads": 12, "d_ff": 3072},
}

_COMMON = (
    *(
        Row(row.theirs.replace("bert.", "electra.", 1), row.ours, row.how)
        for row in NAMES
        if row.theirs.startswith("bert.") and row.ours != "head.dense.*"
    ),
    Row("electra.embeddings_project.*", "encoder.embedding.project.*"),
)
_DISCRIMINATOR = (
    Row("discriminator_predictions.dense.*", "head.transform.dense.*"),
    Row("discriminator_predictions.dense_prediction.*", "head.out.*"),
)
_GENERATOR = (
    Row("generator_predictions.dense.*", "head.transform.dense.*"),
    Row("generator_predictions.LayerNorm.*", "head.transform.norm.*"),
    Row("generator_lm_head.weight", "head.weight"),
    Row("generator_lm_head.bias", "head.bias"),
)


def names(spec: Transformer) -> Table:
    """The rows, with those of the head that there is."""
    if isinstance(spec.head, SequenceClassifier):
        return (*_COMMON, *dense("classifier"))
    if isinstance(spec.head, Span):
        return (*_COMMON, ANSWERS)
    if isinstance(spec.head, TokenClassifier) and spec.head.transform is None:
        return (*_COMMON, TAGS)
    return (*_COMMON, *(_GENERATOR if isinstance(spec.head, LanguageModel) else _DISCRIMINATOR))


FAMILY = Family(
    model_type="electra",
    make=electra,
    classes={
        "ElectraForPreTraining": Class(),
        "ElectraForMaskedLM": Class({"head": "generator"}),
        "ElectraModel": Class({"head": None}, bare=True),
        "ElectraForSequenceClassification": Class(
            {"head": None}, head=SequenceClassifier(activation="gelu"), dropout=BERTS_DROPOUT
        ),
        "ElectraForTokenClassification": Class({"head": None}, head=TokenClassifier(), dropout=BERTS_DROPOUT),
        "ElectraForQuestionAnswering": Class({"head": None}, head=Span()),
    },
    prefix="electra.",
    fields=changed(
        FIELDS,
        Key("embedding_size", "embedding_size", 128),
        Key("hidden_size", "d_model", 256),
        Key("num_attention_heads", "n_heads", 4),
        Key("intermediate_size", "d_ff", 1024),
    ),
    places={
        **PLACES,
        "embedding_size": lambda spec: spec.encoder.embedding.width or spec.d_model,  # type: ignore[union-attr]
    },
    harmless={
        "position_embedding_type": "absolute",
        # What a summary of the sequence would be, for classes that have one.
        **dict.fromkeys(("summary_type", "summary_use_proj", "summary_activation", "summary_last_dropout"), ANY),
    },
    names=names,
)
