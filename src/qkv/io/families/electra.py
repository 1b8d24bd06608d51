"""ELECTRA (Clark et al. 2020): BERT with narrow embeddings, trained to tell replaced tokens from real ones."""

from __future__ import annotations

from typing import Any, Literal

from ...core.spec import brief
from ...nn.models.heads.language_model import LanguageModel, Transform
from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.heads.text import Span, TokenClassifier
from ...nn.models.transformer import Transformer
from ..hub.family import Class, Family, Table, at
from ..hub.keys import ANY, Key, changed
from ..hub.names import Row
from .bert import FIELDS, PLACES, bert, body
from .classes import ANSWERS, BERTS_DROPOUT, TAGS, dense
from .factories import based_on


@based_on(bert, without=("pooler", "labels"), d_model=256, n_heads=4, d_ff=1024)
def electra(
    *, embedding_size: int = 128, head: Literal["discriminator", "generator"] | None = "discriminator", **sizes: Any
) -> Transformer:
    """BERT whose embeddings are `embedding_size` wide.

    The discriminator predicts for each token the log-odds that it was replaced, the generator predicts masked tokens.
    """
    spec = bert(**sizes, head=head == "generator")
    narrow = None if embedding_size == sizes["d_model"] else embedding_size
    changes: dict[str, Any] = {"encoder.embedding.width": narrow}
    if head == "generator":
        changes |= {"head.transform.width": narrow, "head.transform.activation": "gelu"}
    elif head == "discriminator":
        changes["head"] = TokenClassifier(transform=Transform(activation=sizes["activation"], norm="none"))
    elif head is not None:
        raise ValueError(f"head is 'discriminator', 'generator' or None, not {brief(head)}")
    return spec.replace(changes)


SIZES: dict[str, dict[str, Any]] = {
    "electra-small": {},
    "electra-base": {"embedding_size": 768, "d_model": 768, "n_heads": 12, "d_ff": 3072},
}

_COMMON = (*body("electra"), Row("electra.embeddings_project.*", "encoder.embedding.project.*"))
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
    """The rows, with the head's rows if there is a head."""
    if isinstance(spec.head, SequenceClassifier):
        return (*_COMMON, *dense("classifier"))
    if isinstance(spec.head, Span):
        return (*_COMMON, ANSWERS)
    if isinstance(spec.head, TokenClassifier) and spec.head.transform is None:
        return (*_COMMON, TAGS)
    return (*_COMMON, *(_GENERATOR if isinstance(spec.head, LanguageModel) else _DISCRIMINATOR))


NO_HEAD = {"head": None}

FAMILY = Family(
    model_type="electra",
    make=electra,
    classes={
        "ElectraForPreTraining": Class(),
        "ElectraForMaskedLM": Class({"head": "generator"}),
        "ElectraModel": Class(NO_HEAD, bare=True),
        "ElectraForSequenceClassification": Class(
            NO_HEAD, head=SequenceClassifier(activation="gelu"), dropout=BERTS_DROPOUT
        ),
        "ElectraForTokenClassification": Class(NO_HEAD, head=TokenClassifier(), dropout=BERTS_DROPOUT),
        "ElectraForQuestionAnswering": Class(NO_HEAD, head=Span()),
    },
    prefix="electra.",
    fields=changed(
        FIELDS,
        Key("embedding_size", "embedding_size", 128),
        hidden_size=256,
        num_attention_heads=4,
        intermediate_size=1024,
    ),
    places={
        **PLACES,
        "embedding_size": lambda spec: at(spec, "encoder.embedding.width") or spec.d_model,
    },
    harmless={
        "position_embedding_type": "absolute",
        # What a summary of the sequence would be, for classes that have one.
        **dict.fromkeys(("summary_type", "summary_use_proj", "summary_activation", "summary_last_dropout"), ANY),
    },
    names=names,
)
