"""Qwen 2 and 2.5 (Yang et al. 2024): Llama with biases on queries, keys and values, and windows in the upper layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...core.spec import brief
from ...nn.positions.rotary import Rotary
from ..hub.keys import Config, changed
from .classes import decoders
from .llama import FAMILY as LLAMA
from .llama import FIELDS, llama

SIZES: dict[str, dict[str, Any]] = {
    "qwen2-7b": {
        "vocab_size": 152064,
        "d_model": 3584,
        "n_layers": 28,
        "n_heads": 28,
        "n_kv_heads": 4,
        "d_ff": 18944,
        "eps": 1e-6,
        "position": Rotary(base=1e6),
        "max_positions": 131072,
    }
}

qwen2 = partial(llama, attention_bias=True, out_bias=False)

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class LayerTypes:
    """The field `windows`, one for each layer.

    `layer_types` names each layer's kind; without it, layers from `max_window_layers` on slide if `use_sliding_window`.
    Families with another rule override `keys` and `types`.
    """

    max_window_layers: int = 28
    window: int = 4096
    size: str = "windows"

    @property
    def keys(self) -> Mapping[str, Any]:
        keys = {"use_sliding_window": False, "sliding_window": self.window, "layer_types": None}
        return keys | {"max_window_layers": self.max_window_layers}

    def types(self, config: Config) -> list[str]:
        """The kinds of layers without `layer_types`."""
        first = config["max_window_layers"] if config["use_sliding_window"] and config["sliding_window"] else None
        return [FULL if first is None or i < first else SLIDING for i in range(config["num_hidden_layers"])]

    def read(self, config: Config) -> tuple[int | None, ...]:
        n_layers = config["num_hidden_layers"]
        window = config["sliding_window"] if config.get("use_sliding_window", True) else None
        types = config.get("layer_types") or self.types(config)
        if len(types) != n_layers or not {*types} <= {FULL, SLIDING}:
            raise ValueError(
                f"layer_types {brief(types)} must be {FULL!r} or {SLIDING!r} for each of {n_layers} layers "
                "(num_hidden_layers)"
            )
        if not window and SLIDING in types:
            raise ValueError(
                f"layer_types has {SLIDING!r}, and there is no sliding_window in use; set it (and use_sliding_window)"
            )
        return tuple(window if kind == SLIDING else None for kind in types)

    def write(self, value: Sequence[int | None], sizes: Mapping[str, Any]) -> dict[str, Any]:
        windows = {size for size in value if size is not None}
        if len(windows) > 1:
            raise ValueError(f"its layers share one sliding window, and this model's have {sorted(windows)}")
        first = next((i for i, size in enumerate(value) if size is not None), self.max_window_layers)
        settings = {
            "use_sliding_window": bool(windows),
            "sliding_window": next(iter(windows), None),
            "max_window_layers": first,
            "layer_types": [FULL if size is None else SLIDING for size in value],
        }
        return {key: settings[key] for key in self.keys if key in settings}


FAMILY = replace(
    LLAMA,
    model_type="qwen2",
    make=qwen2,
    classes=decoders("Qwen2"),
    fields=changed(
        FIELDS,
        LayerTypes(),
        vocab_size=151936,
        intermediate_size=22016,
        num_key_value_heads=32,
        max_position_embeddings=32768,
    ),
)
