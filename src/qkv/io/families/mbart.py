"""mBART and mBART-50 (Liu et al. 2020; Tang et al. 2020): BART with pre-norm and a norm after each stack."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ...nn.models.heads.sequence import SequenceClassifier
from ...nn.models.heads.text import Span
from ..hub.family import Class
from ..hub.keys import LabelCount
from ..hub.names import Row
from .bart import FAMILY as BART
from .bart import TABLE, bart
from .classes import BARE, answering, classifier

mbart = partial(bart, pre_norm=True)

SIZES: dict[str, dict[str, Any]] = {
    "mbart-large-cc25": {"vocab_size": 250027, "scaled": True},
    "mbart-large-50": {"vocab_size": 250054, "scaled": True, "activation": "relu"},
}

STACKS = Row("model.[encoder,decoder].layer_norm.*", "[encoder,decoder].norm.*")
"""The norm after each stack."""

FAMILY = replace(
    BART,
    model_type="mbart",
    make=mbart,
    classes={
        "MBartForConditionalGeneration": Class(),
        "MBartModel": BARE,
        "MBartForSequenceClassification": classifier(SequenceClassifier(pool="last"), {"classifier_dropout": 0.0}),
        "MBartForQuestionAnswering": classifier(Span()),
    },
    labels=LabelCount(),
    harmless={**BART.harmless, "normalize_before": True, "add_final_layer_norm": True},
    names=answering((*TABLE, STACKS)),
    wraps=True,
)
