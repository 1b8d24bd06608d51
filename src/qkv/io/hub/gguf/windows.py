"""Sliding windows that llama.cpp computes: Gemma's, where all layers but the last of each period have one.

Other layouts are stored as a list with one entry per layer. qkv reads such lists but does not write them, because
older versions of llama.cpp ignore them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core.spec import brief
from .keys import Config, Metadata, scalar

FULL, SLIDING = "full_attention", "sliding_attention"
PATTERN = "attention.sliding_window_pattern"


@dataclass(frozen=True)
class GGUFWindows:
    """`sliding_window` and `layer_types`; `period`: llama.cpp's layers slide but for the last of so many."""

    period: int

    def write(self, config: Config) -> Metadata:
        types, window = config["layer_types"], config["sliding_window"]
        if SLIDING not in types:
            window, types = config["max_position_embeddings"], [FULL] * len(types)
        elif types != self._usual(len(types)):
            raise ValueError(
                f"qkv writes GGUF of this family whose layers slide but for the last of each {self.period}, which every "
                f"version of llama.cpp computes, and this model's layer_types are {brief(types)}"
            )
        return {"attention.sliding_window": window}

    def _usual(self, n_layers: int) -> list[str]:
        return [SLIDING if (i + 1) % self.period else FULL for i in range(n_layers)]

    def read(self, metadata: Config) -> dict[str, Any]:
        layers, window = metadata.get("block_count"), scalar(metadata, "attention.sliding_window", 4096)
        if type(layers) is not int or not 0 < layers <= 1 << 16:
            raise ValueError(f"block_count must be a number of layers, not {brief(layers)}")
        pattern = metadata.get(PATTERN, self.period)
        if isinstance(pattern, np.ndarray):
            if len(pattern) < layers:
                raise ValueError(f"{PATTERN} has {len(pattern)} entries for {layers} layers")
            types = [SLIDING if slides else FULL for slides in pattern[:layers]]
        elif type(pattern) is int and pattern >= 0:
            types = [SLIDING if pattern and (i + 1) % pattern else FULL for i in range(layers)]
        else:
            raise ValueError(f"{PATTERN} must be a number or one entry for each layer, not {brief(pattern)}")
        return {"sliding_window": window, "layer_types": types}
