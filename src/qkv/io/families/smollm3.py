"""SmolLM3 (Bakouch et al. 2025): Llama with every fourth layer without positions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...nn.models.transformer import Transformer
from ...nn.positions.absolute import NoPosition
from ...nn.positions.rotary import Rotary
from ..hub.family import at
from ..hub.keys import Config, changed
from .classes import decoders
from .llama import FAMILY as LLAMA
from .llama import llama
from .places import places
from .qwen2 import FULL, SLIDING, LayerTypes
from .rope import Rope

smollm3 = partial(llama, position=Rotary(base=2e6), tied=True)

SIZES: dict[str, dict[str, Any]] = {
    "smollm3-3b": {
        "vocab_size": 128256,
        "d_model": 2048,
        "n_layers": 36,
        "n_heads": 16,
        "n_kv_heads": 4,
        "eps": 1e-6,
        "position": Rotary(base=5e6),
        "unrotated": tuple(range(3, 36, 4)),
        "max_positions": 65536,
    }
}


@dataclass(frozen=True)
class UnrotatedLayers:
    """The field `unrotated`: layers with a 0 in `no_rope_layers`; without it, every `no_rope_layer_interval`-th."""

    size: str = "unrotated"

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"no_rope_layers": None, "no_rope_layer_interval": 4}

    def read(self, config: Config) -> tuple[int, ...]:
        count, interval = config["num_hidden_layers"], config["no_rope_layer_interval"]
        rotated = config["no_rope_layers"] or [(i + 1) % interval for i in range(count)]
        if len(rotated) < count:
            raise ValueError(f"no_rope_layers has {len(rotated)} entries for {count} layers (num_hidden_layers)")
        return tuple(i for i in range(count) if not rotated[i])

    def write(self, value: Collection[int], sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {"no_rope_layers": [int(i not in value) for i in range(sizes["n_layers"])], "no_rope_layer_interval": 4}


class SmolLM3Windows(LayerTypes):
    """The field `windows`: without `layer_types`, layers without positions slide if `use_sliding_window`."""

    @property
    def keys(self) -> Mapping[str, Any]:
        return {"use_sliding_window": False, "sliding_window": None, "layer_types": None}

    def types(self, config: Config) -> list[str]:
        slides = config["use_sliding_window"] and config["sliding_window"] is not None
        unrotated = UnrotatedLayers().read(config) if slides else ()
        return [SLIDING if i in unrotated else FULL for i in range(config["num_hidden_layers"])]


def _unrotated(spec: Transformer) -> tuple[int, ...]:
    blocks = at(spec, "decoder.blocks")
    return tuple(i for i, block in enumerate(blocks) if isinstance(block.position, NoPosition))


FAMILY = replace(
    LLAMA,
    model_type="smollm3",
    make=smollm3,
    classes=decoders("SmolLM3"),
    fields=changed(
        LLAMA.fields,
        Rope(base=2e6),
        SmolLM3Windows(),
        UnrotatedLayers(),
        vocab_size=128256,
        hidden_size=2048,
        num_hidden_layers=36,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
    ),
    places={**places("decoder"), "unrotated": _unrotated},
)
