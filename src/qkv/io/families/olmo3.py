"""OLMo 3 (OLMo Team 2025): OLMo 2 with windows in three of four layers; rotary scalings belong to the other layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...nn.models.transformer import Transformer
from ...nn.positions.base import Position
from ...nn.positions.rope_scaling import YaRN
from ...nn.positions.rotary import Rotary
from ..hub.keys import changed
from .classes import decoders
from .factories import based_on
from .gemma2 import Alternating
from .gemma3 import LocalRopes, Ropes, local
from .olmo2 import FAMILY as OLMO2
from .olmo2 import olmo2

BASE = 500000.0


@based_on(olmo2, without=("windows",), vocab_size=100278, eps=1e-6, max_positions=65536)
def olmo3(
    *,
    windows: Sequence[int | None] | int | None = 4096,
    period: int = 4,
    local_position: Position | None = None,
    **sizes: Any,
) -> Transformer:
    """OLMo 2 whose layers see `windows` tokens: a number is the window of all layers but the last of each `period`; else
    there is one for each. Layers with a window have `local_position`."""
    n_layers = sizes["n_layers"]
    if windows is None or isinstance(windows, int):
        windows = tuple(windows if (i + 1) % period else None for i in range(n_layers))
    near = local_position or Rotary(base=BASE)
    spec = olmo2(**{**sizes, "position": sizes["position"] or Rotary(base=BASE)}, windows=windows)
    return spec.replace({f"decoder.blocks.{i}.position": near for i, size in enumerate(windows) if size is not None})


LONG = Rotary(base=BASE, scaling=YaRN(factor=8.0, original_max_positions=8192))

SIZES: dict[str, dict[str, Any]] = {
    "olmo-3-7b": {"position": LONG},
    "olmo-3-32b": {
        "position": LONG,
        "d_model": 5120,
        "n_layers": 64,
        "n_heads": 40,
        "n_kv_heads": 8,
        "d_ff": 27648,
    },
}


class Olmo3Windows(Alternating):
    period = 4


FAMILY = replace(
    OLMO2,
    model_type="olmo3",
    make=olmo3,
    classes={name: cls for name, cls in decoders("Olmo3").items() if "Token" not in name},
    fields=changed(
        OLMO2.fields,
        Olmo3Windows(),
        Ropes(base=BASE),
        LocalRopes(base=BASE, size="local_position"),
    ),
    places={**OLMO2.places, "local_position": local},
)
