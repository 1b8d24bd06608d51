"""Choose what to remove, by importance: the least important heads over all layers, neurons of each layer, whole layers;
and how much: the elbow of a curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from .units import AttentionLayer


def least_heads(
    importance: Mapping[str, Tensor], layers: Mapping[str, AttentionLayer], share: float
) -> dict[str, list[int]]:
    """Return the least important heads, a `share` of all, rounded to the nearest number; every layer keeps one at least.

    Heads that share keys and values are removed together, ordered by the sum of their importance divided by their number.
    """
    wanted = round(share * sum(layer.n_heads for layer in layers.values()))
    chosen: dict[str, list[int]] = {}
    removed = 0
    for name, heads in removal_order(importance, layers):
        if removed + len(heads) <= wanted:
            removed += len(heads)
            chosen.setdefault(name, []).extend(heads)
    return {name: sorted(heads) for name, heads in chosen.items()}


def removal_order(importance: Mapping[str, Tensor], layers: Mapping[str, AttentionLayer]) -> list[tuple[str, range]]:
    """Return what can be removed one after another, the least important first: (layer, heads that share keys and values).
    The last of each layer is left out."""
    units = [
        (float(importance[name][list(heads)].mean()), name, heads)
        for name, layer in layers.items()
        for heads in groups(layer)
    ]
    left, order = {name: layer.n_heads for name, layer in layers.items()}, list[tuple[str, range]]()
    for _, name, heads in sorted(units, key=lambda unit: unit[0]):
        if left[name] > len(heads):
            left[name] -= len(heads)
            order.append((name, heads))
    return order


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


def elbow(points: Sequence[tuple[float, float]]) -> int | None:
    """Return the index of a curve's elbow: the point farthest from the chord of its ends, if both axes go from 0 to 1
    (Kneedle, Satopää et al. 2011).

    Only points count that the curve reaches before it turns: below the chord of one that rises, above that of one that
    falls. Returns None if there are none, as on a straight line, and if the ends are level.
    """
    if len(points) < 3 or not all(math.isfinite(value) for point in points for value in point):
        return None
    (first, start), (last, end) = points[0], points[-1]
    if last == first or end == start:
        return None
    distances = [(x - first) / (last - first) - (y - start) / (end - start) for x, y in points]
    farthest = max(range(len(points)), key=distances.__getitem__)
    return farthest if distances[farthest] > 1e-9 else None
