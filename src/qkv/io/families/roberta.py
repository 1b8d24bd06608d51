"""RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2020) and CamemBERT (Martin et al. 2020): BERT without
sentences, whose positions count from one past the padding token's id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...nn.models.transformer import Transformer
from ...nn.positions.absolute import Learned
from ..hub.keys import Config, Field, changed
from ..hub.names import Row
from .bert import FAMILY as BERT
from .bert import FIELDS, bert, body
from .classes import BERTS_DROPOUT, dense, encoders, reading
from .factories import based_on


@based_on(bert, without=("labels",))
def roberta(**sizes: Any) -> Transformer:
    """BERT whose head for masked tokens has the activation "gelu", whatever the layers have."""
    spec = bert(**sizes)
    return spec.replace({"head.transform.activation": "gelu"}) if sizes["head"] else spec


USUAL: dict[str, Any] = {"eps": 1e-5, "token_types": 1, "position": Learned(offset=2)}
LARGE: dict[str, Any] = {**USUAL, "d_model": 1024, "n_layers": 24, "n_heads": 16, "d_ff": 4096}

SIZES: dict[str, dict[str, Any]] = {
    "roberta-base": {"vocab_size": 50265, **USUAL},
    "roberta-large": {"vocab_size": 50265, **LARGE},
    "xlm-roberta-base": {"vocab_size": 250002, **USUAL},
    "xlm-roberta-large": {"vocab_size": 250002, **LARGE},
    "camembert-base": {"vocab_size": 32005, **USUAL},
    "camembert-large": {"vocab_size": 32005, **LARGE},
}

PADDING, LONGEST = "pad_token_id", "max_position_embeddings"


@dataclass(frozen=True)
class Offset:
    """The field `position`: the table's first rows, one more than the padding token's id, belong to no position."""

    size: str = "position"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {PADDING: 1}

    def read(self, config: Config) -> Learned:
        return Learned(offset=config[PADDING] + 1)

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(value, Learned) or value.offset < 1:
            raise ValueError(f"its positions are learned and begin at 1 or above, and this model's are {value}")
        return {PADDING: value.offset - 1}


@dataclass(frozen=True)
class Longest:
    """The field `max_positions`: what the table's rows leave when those before the first position are taken off."""

    size: str = "max_positions"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {LONGEST: 512}

    def read(self, config: Config) -> int:
        longest = config[LONGEST] - config[PADDING] - 1
        if longest < 1:
            raise ValueError(
                f"{LONGEST} is {config[LONGEST]} and {PADDING} {config[PADDING]}: positions are counted from one after the "
                f"padding token's id, so {LONGEST} has to be at least {config[PADDING] + 2}"
            )
        return longest

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {LONGEST: value + sizes["position"].offset}


OWN: tuple[Field, ...] = (Offset(), Longest())

HEADS = (
    Row("lm_head.dense.*", "head.transform.dense.*"),
    Row("lm_head.layer_norm.*", "head.transform.norm.*"),
    Row("lm_head.decoder.weight", "head.weight"),
    Row("lm_head.bias", "head.bias"),
    Row("lm_head.decoder.bias", "head.bias"),
    *dense("classifier"),
)

FAMILY = replace(
    BERT,
    model_type="roberta",
    make=roberta,
    classes=encoders("Roberta", BERTS_DROPOUT),
    prefix="roberta.",
    fields=changed(FIELDS, *OWN, vocab_size=50265),
    names=reading((*body("roberta"), *HEADS)),
)

XLM_ROBERTA = replace(
    FAMILY,
    model_type="xlm-roberta",
    classes=encoders("XLMRoberta", BERTS_DROPOUT),
    fields=changed(FAMILY.fields, vocab_size=30522),
)

CAMEMBERT = replace(XLM_ROBERTA, model_type="camembert", classes=encoders("Camembert", BERTS_DROPOUT))
