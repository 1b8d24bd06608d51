"""Any qkv model in the library transformers: importing this module registers the model type `qkv` with its Auto classes.

    import qkv.transformers
    model = AutoModelForCausalLM.from_config(qkv.transformers.QkvConfig(spec=spec))

`model.model` is qkv's model with the same parameters. Positions follow the attention mask; a mask of more than two axes is
refused, since a spec's patterns say who sees whom.
"""

from __future__ import annotations

import transformers as _transformers
from transformers.conversion_mapping import register_checkpoint_conversion_mapping as _register_names
from transformers.core_model_loading import WeightRenaming as _Renaming

from .io.transformers.base import QkvModel, QkvPreTrainedModel
from .io.transformers.cache import QkvCache
from .io.transformers.config import QkvConfig
from .io.transformers.generating import QkvForCausalLM, QkvForSeq2SeqLM
from .io.transformers.tasks import (
    QkvForImageClassification,
    QkvForMaskedLM,
    QkvForQuestionAnswering,
    QkvForSequenceClassification,
    QkvForTokenClassification,
)

__all__ = [
    "QkvCache",
    "QkvConfig",
    "QkvForCausalLM",
    "QkvForImageClassification",
    "QkvForMaskedLM",
    "QkvForQuestionAnswering",
    "QkvForSeq2SeqLM",
    "QkvForSequenceClassification",
    "QkvForTokenClassification",
    "QkvModel",
    "QkvPreTrainedModel",
]

# Files have the names of qkv's own directories; the modules stand below `model.`
_register_names("qkv", [_Renaming(r"^(encoder|decoder|head|classification_head)\.", r"model.\1.")], overwrite=True)
_transformers.AutoConfig.register(QkvConfig.model_type, QkvConfig, exist_ok=True)
_transformers.AutoModel.register(QkvConfig, QkvModel, exist_ok=True)
_transformers.AutoModelForCausalLM.register(QkvConfig, QkvForCausalLM, exist_ok=True)
_transformers.AutoModelForSeq2SeqLM.register(QkvConfig, QkvForSeq2SeqLM, exist_ok=True)
_transformers.AutoModelForMaskedLM.register(QkvConfig, QkvForMaskedLM, exist_ok=True)
_transformers.AutoModelForSequenceClassification.register(QkvConfig, QkvForSequenceClassification, exist_ok=True)
_transformers.AutoModelForTokenClassification.register(QkvConfig, QkvForTokenClassification, exist_ok=True)
_transformers.AutoModelForQuestionAnswering.register(QkvConfig, QkvForQuestionAnswering, exist_ok=True)
_transformers.AutoModelForImageClassification.register(QkvConfig, QkvForImageClassification, exist_ok=True)
