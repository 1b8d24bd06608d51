"""Gemma 3, its language models (Gemma Team 2025): Gemma 2 with normed queries and keys, and two rotary bases."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ...core.spec import brief
from ...nn.models.transformer import Transformer
from ...nn.positions.base import Position
from ...nn.positions.rotary import Rotary
from ..hub.family import UNSAID, Class, Family, at
from ..hub.keys import ANY, Config, changed
from . import gemma2 as base
from .classes import BARE, LAST, classifier
from .qwen2 import FULL, SLIDING
from .qwen3 import QK_NORM
from .rope import Rope

gemma3 = partial(
    base.gemma2,
    vocab_size=262208,
    qk_norm=True,
    softcap=None,
    logits_softcap=None,
    position=Rotary(base=1e6),
    local_position=Rotary(),
    period=6,
    max_positions=131072,
)

SMALL = {"vocab_size": 262144, "n_heads": 4, "n_kv_heads": 1, "windows": 512, "max_positions": 32768}

SIZES: dict[str, dict[str, Any]] = {
    "gemma-3-270m": {**SMALL, "d_model": 640, "n_layers": 18, "d_ff": 2048},
    "gemma-3-1b": {**SMALL, "d_model": 1152, "n_layers": 26, "d_ff": 6912},
}


class Gemma3Windows(base.Alternating):
    """The field `windows`: by default, five layers slide and one does not."""

    @property
    def keys(self) -> Mapping[str, Any]:
        return {**super().keys, "sliding_window_pattern": 6}

    def types(self, config: Config) -> list[str]:
        period = config["sliding_window_pattern"]
        return [SLIDING if (i + 1) % period else FULL for i in range(config["num_hidden_layers"])]


class Ropes(Rope):
    """The field `position`, and with `layers` "sliding_attention" the field `local_position`.

    `rope_parameters` holds the parameters of both kinds of layers; in older files, `rope_theta` and `rope_scaling`
    belong to full attention, and `rope_local_base_freq` is the base of the other layers. A `rope_scaling` beside
    `rope_parameters` is added to them.
    """

    layers = FULL
    scaled = True  # whether `rope_scaling` belongs to these layers

    def read(self, config: Config) -> Position:
        ropes = config["rope_parameters"] or {}
        if not {*ropes} <= {FULL, SLIDING}:
            raise ValueError(f"rope_parameters {brief(ropes)} must hold {FULL!r} and {SLIDING!r}")
        scaling = (config["rope_scaling"] or {}) if self.scaled else {}
        own = (ropes.get(self.layers) or {"rope_type": "default"}) | scaling
        where, other = ("rope_parameters", "rope_scaling")[:: -1 if scaling and not ropes else 1]
        return super().read({**config, where: own, other: None})

    def write(self, value: object, sizes: Mapping[str, Any]) -> dict[str, Any]:
        ropes = {FULL: sizes["position"], SLIDING: sizes.get("local_position", Rotary())}
        return {
            "rope_parameters": {kind: Rope.write(self, rope, sizes)["rope_parameters"] for kind, rope in ropes.items()}
        }


class LocalRopes(Ropes):
    layers = SLIDING
    scaled = False


def local(spec: Transformer) -> Any:
    """The position of the layers that have a window."""
    blocks = at(spec, "decoder.blocks")
    return next((block.position for block in blocks if block.position is not None), UNSAID)


FAMILY = Family(
    model_type="gemma3_text",
    make=gemma3,
    classes={
        "Gemma3ForCausalLM": Class(),
        "Gemma3TextModel": BARE,
        "Gemma3TextForSequenceClassification": classifier(LAST),
    },
    prefix="model.",
    fields=(
        *changed(
            base.FAMILY.fields,
            Gemma3Windows(),
            without=("position", "softcap"),
            vocab_size=262208,
            max_position_embeddings=131072,
            final_logit_softcapping=None,
        ),
        Ropes(base=1e6),
        LocalRopes(theta_key="rope_local_base_freq", size="local_position"),
    ),
    places={**base.FAMILY.places, "local_position": local},
    harmless={
        **base.FAMILY.harmless,
        "_sliding_window_pattern": ANY,  # beside layer_types, which count
        "attn_logit_softcapping": None,  # which transformers stores and never uses
    },
    names=(*base.GEMMA2_NAMES, QK_NORM),
)
