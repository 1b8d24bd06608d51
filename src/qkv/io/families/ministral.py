"""Ministral 3 and Ministral (Mistral AI 2025, 2024): Mistral with queries that grow with their position, or with windows in
some of the layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...nn.models.heads.text import Span
from ...nn.models.transformer import Transformer
from ...nn.positions.base import Position
from ...nn.positions.rope_scaling import YaRN
from ...nn.positions.rotary import Rotary
from ...nn.positions.tempered import TemperedRotary
from ..hub.keys import Config, changed
from .classes import answering, classifier, decoders
from .factories import based_on
from .gemma2 import Alternating
from .llama import FAMILY as LLAMA
from .llama import NAMES, llama
from .mistral import FAMILY as MISTRAL
from .qwen2 import FULL, SLIDING
from .rope import LENGTH, Rope

BETA = "llama_4_scaling_beta"

LONG = TemperedRotary(
    base=1e6,
    scaling=YaRN(factor=16.0, original_max_positions=16384, mscale=1.0, mscale_all_dim=1.0),
    beta=0.1,
    length=16384,
)


@based_on(llama, vocab_size=131072, n_kv_heads=8, d_head=128, d_ff=14336, n_layers=34, max_positions=262144)
def ministral3(**sizes: Any) -> Transformer:
    """Llama whose queries are multiplied by 1 + beta · ln(1 + ⌊p / length⌋)."""
    return llama(**{**sizes, "position": sizes["position"] or LONG})


SIZES: dict[str, dict[str, Any]] = {
    "ministral-3-3b": {"d_model": 3072, "n_layers": 26, "d_ff": 9216, "tied": True},
    "ministral-3-8b": {},
    "ministral-3-14b": {"d_model": 5120, "n_layers": 40, "d_ff": 16384},
}


@dataclass(frozen=True)
class TemperedRope(Rope):
    """The field `position`: `rope_parameters` hold the growth of queries, and the context of training, which counts it."""

    @property
    def keys(self) -> Mapping[str, Any]:
        default = {
            "type": "yarn",
            "rope_theta": LONG.base,
            "factor": 16.0,
            LENGTH: LONG.length,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            BETA: LONG.beta,
        }
        return {**super().keys, "rope_parameters": default}

    def read(self, config: Config) -> Position:
        where = "rope_scaling" if config["rope_scaling"] else "rope_parameters"
        parameters = dict(config[where] or {})
        parameters.pop("max_position_embeddings", None)  # repeated there
        beta, length = parameters.pop(BETA, None), parameters.get(LENGTH)
        if beta is None or length is None:
            raise ValueError(f"{where} needs {BETA} and {LENGTH}, by which queries grow with their position")
        rotary = super().read({**config, where: parameters})
        assert isinstance(rotary, Rotary)
        return TemperedRotary(base=rotary.base, scaling=rotary.scaling, beta=beta, length=length)

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(value, TemperedRotary):
            raise ValueError(f"its queries grow with their position, and this model has {value}")
        if getattr(value.scaling, "original_max_positions", value.length) != value.length:
            raise ValueError(
                f"its queries grow by the context of training, {value.scaling.original_max_positions}, and this model's by "  # type: ignore[attr-defined]
                f"{value.length}"
            )
        plain = Rotary(base=value.base, scaling=value.scaling, fraction=value.fraction, pairs=value.pairs)
        written = super().write(plain, sizes)
        return {"rope_parameters": {**written["rope_parameters"], LENGTH: value.length, BETA: value.beta}}


FAMILY = replace(
    MISTRAL,
    model_type="ministral3",
    make=ministral3,
    names=answering(NAMES),
    classes={**decoders("Ministral3"), "Ministral3ForQuestionAnswering": classifier(Span())},
    fields=changed(
        MISTRAL.fields,
        TemperedRope(base=1e6),
        vocab_size=131072,
        num_hidden_layers=34,
        head_dim=128,
        max_position_embeddings=262144,
        rms_norm_eps=1e-5,
        sliding_window=None,
    ),
)


class SomeSlide(Alternating):
    """The field `windows`: without `layer_types`, all layers slide, or none if there is no window."""

    def types(self, config: Config) -> list[str]:
        return [SLIDING if config["sliding_window"] else FULL] * config["num_hidden_layers"]


MINISTRAL = replace(
    LLAMA,
    model_type="ministral",
    names=answering(NAMES),
    classes={**decoders("Ministral"), "MinistralForQuestionAnswering": classifier(Span())},
    fields=changed(
        LLAMA.fields,
        SomeSlide(),
        without=("attention_bias", "feedforward_bias"),
        intermediate_size=14336,
        num_key_value_heads=8,
        max_position_embeddings=131072,
    ),
)
