"""Communication of context parallelism for a layer: ring, all-to-all, all-gather, or the sums of linear attention.

With p ranks, T/p tokens each, K key-value heads of H, width D and b bytes a number, each rank sends forward

    ring          (p − 1) · 2 T/p K D b      during attention to the previous block
    all-to-all    2 T/p (H + K) D b          before and after attention
    all-gather    (p − 1) · 2 T/p K D b      before attention
    sums          K D (D + 1) · 4 · 2 p      independent of the length
    whole         (p − 1) T/p M b            mixers that need all tokens on every rank

Backward sends as much again for gradients, and the ring also sends keys and values a second time.
"""

from __future__ import annotations

from typing import Literal

from .communication import RankGroup
from .execution import Execution
from .layout import RankLayout
from .work import LayerWork

Method = Literal["ring", "all-to-all", "all-gather", "sums", "whole"]


def method_of(layer: LayerWork, layout: RankLayout) -> Method:
    """Return how a layer reaches the tokens of other ranks. Attention that a method does not support gathers its keys."""
    if layer.apart != "keys":
        return layer.apart
    own, shared = layer.heads // layout.tensor, layer.kv_heads // layout.tensor
    exchangeable = bool(own) and own % layout.context == 0 == shared % layout.context
    if layer.gathers or (layout.attention == "all-to-all" and not exchangeable):
        return "all-gather"
    return layout.attention


def exchanged(
    layer: LayerWork, layout: RankLayout, ranks: RankGroup, how: Execution, computing: float
) -> tuple[float, float]:
    """Return the seconds of a layer's communication per microbatch, and how many of them `computing` seconds of attention
    don't hide."""
    p, w = layout.context, how.width
    tokens = layout.rows * layer.tokens / p
    again = layout.repeated
    method = method_of(layer, layout)
    keys = 2 * tokens * layer.kv_heads * layer.d_head * w / layout.tensor
    if method == "ring":
        sends = (3 + again) * (p - 1) * ranks.send(keys)
        return sends, max(0.0, sends - computing * (p - 1) / p)
    if method == "all-to-all":
        both = 2 * tokens * (layer.heads + layer.kv_heads) * layer.d_head * w / layout.tensor
        seconds = (2 + again) * ranks.all_to_all(both)
    elif method == "all-gather":
        seconds = (2 + again) * ranks.all_gather(p * keys)
    elif method == "sums":
        width = layer.d_model
        seconds = (2 + again) * ranks.all_gather(layout.rows * 8 * p * width * (width / max(layer.kv_heads, 1) + 1))
    else:
        seconds = (2 + again) * ranks.all_gather(p * tokens * layer.d_model * w)
    return seconds, seconds
