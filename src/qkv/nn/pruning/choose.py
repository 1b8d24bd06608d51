"""Choose what to remove, by importance: the least important heads over all layers, neurons of each layer, whole layers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from .units import AttentionLayer


def least_heads(
    importance: Mapping[str, Tensor], layers: Mapping[str, AttentionLayer], share: float
) -> dict[str, list[int]]:
    """Return the least important heads, a `share` of all, rounded to the nearest number; every layer keeps one at least.

    Heads that share keys and values are removed together, ordered by the sum of their importance divided by their number.
    """
    units = [
        (float(importance[name][list(heads)].mean()), name, heads)
        for name, layer in layers.items()
        for heads in groups(layer)
    ]
    total = sum(layer.n_heads for layer in layers.values())
    left, wanted = {name: layer.n_heads for name, layer in layers.items()}, round(share * total)
    chosen: dict[str, list[int]] = {}
    removed = 0
    for _, name, heads in sorted(units, key=lambda unit: unit[0]):
        if removed + len(heads) > wanted or left[name] == len(heads):
            continue
        left[name] -= len(heads)
        removed += len(heads)
        chosen.setdefault(name, []).extend(heads)
    return {name: sorted(heads) for name, heads in chosen.items()}


def groups(layer: AttentionLayer) -> list[range]:
    """The heads of a layer, by the key-value head that they share."""
    return [range(start, start + layer.group) for start in range(0, layer.n_heads, layer.group)]


def least_neurons(importance: Mapping[str, Tensor], share: float) -> dict[str, list[int]]:
    """Return the least important neurons: the same `share` of each layer, so layers stay alike; one is always kept."""
    return {
        name: sorted(values.argsort()[: min(math.floor(share * len(values) + 0.5), len(values) - 1)].tolist())
        for name, values in importance.items()
    }


def least_layers(importance: Mapping[str, Tensor], count: int) -> dict[str, list[int]]:
    """Return the `count` least important layers over all stacks; every stack keeps one at least.

    Raises ValueError if there are too few.
    """
    total = sum(len(values) for values in importance.values())
    if count > total - len(importance):
        raise ValueError(f"{count} of {total} layers can't be removed: every stack keeps one at least")
    order = sorted((float(v), name, i) for name, values in importance.items() for i, v in enumerate(values))
    left, chosen = {name: len(values) for name, values in importance.items()}, dict[str, list[int]]()
    for _, name, i in order:
        if sum(map(len, chosen.values())) < count and left[name] > 1:
            left[name] -= 1
            chosen.setdefault(name, []).append(i)
    return {name: sorted(layers) for name, layers in chosen.items()}
