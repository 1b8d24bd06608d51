"""Mistral (Jiang et al. 2023): Llama with grouped queries and a sliding window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..hub.family import at
from ..hub.keys import Key, changed
from .classes import decoders
from .llama import FAMILY as LLAMA
from .llama import FIELDS, llama
from .places import Place, places, window_of

SIZES: dict[str, dict[str, Any]] = {
    "mistral-7b": {"n_kv_heads": 8, "d_ff": 14336, "windows": 4096, "max_positions": 32768}
}

USUAL = places("decoder")


def _window(spec: Any) -> int | None:
    """The window of every layer; layers with different windows are not Mistral's."""
    windows = {window_of(block.attention.pattern) for block in at(spec, "decoder.blocks")}
    if len(windows) > 1:
        raise AttributeError(f"its layers have windows {sorted(windows, key=str)}")
    return windows.pop()


PLACES: dict[str, Place] = {**USUAL, "windows": _window}


FAMILY = replace(
    LLAMA,
    model_type="mistral",
    make=llama,
    classes=decoders("Mistral"),
    fields=changed(
        FIELDS,
        Key("sliding_window", "windows", 4096),
        intermediate_size=14336,
        num_key_value_heads=8,
        max_position_embeddings=131072,
    ),
    places=PLACES,
)
