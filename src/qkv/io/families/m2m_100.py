"""M2M-100 (Fan et al. 2020) and NLLB (NLLB Team 2022): translation among many languages, by BART with pre-norm and sines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...nn.models.transformer import Transformer
from ...nn.positions.absolute import Sinusoidal
from ..hub.family import UNSAID, Class, Family, at
from ..hub.keys import Config, changed
from ..hub.names import Row
from .bart import FIELDS, HARMLESS, NAMES, PLACES, bart
from .classes import BARE
from .mbart import STACKS
from .roberta import PADDING


def waves(offset: int) -> Sinusoidal:
    """tensor2tensor's sines and cosines of positions that begin at `offset`."""
    return Sinusoidal(arrangement="concatenated", rates="tensor2tensor", offset=offset)


m2m_100 = partial(
    bart,
    vocab_size=128112,
    activation="relu",
    attention_dropout=0.1,
    scaled=True,
    normed=False,
    pre_norm=True,
    output_bias=False,
    position=waves(2),
)

NLLB = {"vocab_size": 256206}

SIZES: dict[str, dict[str, Any]] = {
    "m2m100-418m": {},
    "m2m100-1.2b": {"n_layers": 24, "d_ff": 8192},
    "nllb-200-distilled-600m": NLLB,
    "nllb-200-1.3b": {**NLLB, "n_layers": 24, "d_ff": 8192},
    "nllb-200-3.3b": {**NLLB, "d_model": 2048, "n_layers": 24, "d_ff": 8192},
}


@dataclass(frozen=True)
class WaveOffset:
    """The field `position`: the first position is one more than the padding token's id."""

    size: str = "position"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {PADDING: 1}

    def read(self, config: Config) -> Sinusoidal:
        return waves(config[PADDING] + 1)

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(value, Sinusoidal) or value.offset < 1:
            raise ValueError(f"its positions are sinusoidal and begin at 1 or above, and this model's are {value}")
        return {PADDING: value.offset - 1}


def _waves(spec: Transformer) -> Any:
    """The positions, if they differ from the family's in nothing but the first."""
    position = at(spec, "encoder.position")
    return position if position == waves(getattr(position, "offset", 0)) else UNSAID


FAMILY = Family(
    model_type="m2m_100",
    make=m2m_100,
    classes={"M2M100ForConditionalGeneration": Class(), "M2M100Model": BARE},
    prefix="model.",
    is_encoder_decoder=True,
    fields=changed(
        FIELDS,
        WaveOffset(),
        vocab_size=128112,
        activation_function="relu",
        attention_dropout=0.1,
        scale_embedding=True,
    ),
    places={**PLACES, "position": _waves},
    harmless={
        **HARMLESS,
        "normalize_before": True,
        "add_final_layer_norm": True,
        "normalize_embedding": False,
        "static_position_embeddings": True,
    },
    names=(
        *(row for row in NAMES if "final_logits_bias" not in row.theirs),
        STACKS,
        Row("model.encoder.embed_positions.weights", ""),  # sines, computed; in old files
        Row("model.decoder.embed_positions.weights", ""),
    ),
)
