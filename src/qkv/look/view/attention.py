"""Attention of one input by stack, layer and head, computed only for the queries, keys, layers and heads on display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ...nn.attention import tap
from ...nn.kernels.request import Request
from .axis import Axis

GLOBAL = ".global"  # suffix of the name under which Longformer's global tokens attend
MOST_WEIGHTS = 2_100_000  # in a page; beyond that, evenly spread layers are drawn


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """Attention of one layer: `weights[h, t, s]` is the weight of key s for query t in the h-th head on display.

    name:     of the module, such as "encoder.blocks.0.attention".
    index:    of the layer in its group, from 0.
    heads:    indices of the heads on display.
    computed: False for pairs that a mask or pattern excludes, so no weight is computed; None if there are none.
    request:  what was recorded; None if weights come from several layers (rollout).
    """

    name: str
    index: int
    heads: tuple[int, ...]
    weights: Float[Tensor, "H T S"]
    computed: Bool[Tensor, "H T S"] | None = None
    request: Request | None = None

    def __repr__(self) -> str:
        heads, queries, keys = self.weights.shape
        return f"Layer({self.name}: {heads} heads, {queries} queries, {keys} keys)"


@dataclass(frozen=True, eq=False)
class AttentionGroup:
    """Layers with the same queries and keys: the attention of an encoder, a decoder, or a decoder to its source.

    name:    "encoder", "decoder" or "cross", or "rollout of encoder" …
    query, key: names of the axes.
    total:   number of layers, of which `layers` are on display.
    """

    name: str
    query: str
    key: str
    layers: tuple[LayerAttention, ...]
    total: int
    note: str = ""

    def layer(self, index: int) -> LayerAttention:
        """Return the layer with an index. Raises ValueError if it is not on display."""
        for layer in self.layers:
            if layer.index == index:
                return layer
        raise ValueError(f"{self.name} shows the layers {_listed([layer.index for layer in self.layers])}, not {index}")

    def head(self, index: int, head: int) -> Float[Tensor, "T S"]:
        """Return the weights of one head. Raises ValueError if it is not on display."""
        layer = self.layer(index)
        if head not in layer.heads:
            raise ValueError(f"layer {index} of {self.name} shows the heads {_listed(layer.heads)}, not {head}")
        return layer.weights[layer.heads.index(head)]


def group_of(name: str) -> str:
    """Return the group of a layer by its module name: "cross" for attention to a source, else the name of its stack."""
    parts = name.split(".")
    return "cross" if "cross" in parts else parts[0] or "attention"


def by_group(requests: Sequence[Request]) -> dict[str, list[list[Request]]]:
    """Group recorded requests; a layer has several if some of its tokens attend separately (global tokens)."""
    groups: dict[str, list[list[Request]]] = {}
    for request in requests:
        layers = groups.setdefault(group_of(request.name), [])
        if request.name.endswith(GLOBAL) and layers:
            layers[-1].append(request)
        else:
            layers.append([request])
    return groups


def attention_groups(
    requests: Sequence[Request],
    axes: Mapping[str, tuple[Axis, Axis]],
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> list[AttentionGroup]:
    """Compute the weights on display of every group that has axes (queries, keys).

    Raises ValueError for a layer or head that no group has.
    """
    grouped = {name: layers for name, layers in by_group(requests).items() if name in axes}
    check_indices("layer", layers, max(map(len, grouped.values()), default=0))
    check_indices("head", heads, max((r.n_heads for group in grouped.values() for (r, *_) in group), default=0))
    chosen = {name: _layers_on_display(group, axes[name], layers, heads) for name, group in grouped.items()}
    chosen = {name: kept for name, kept in chosen.items() if kept}
    if layers is None:
        most = MOST_WEIGHTS // max(len(chosen), 1)
        chosen = {name: _affordable(kept, grouped[name], axes[name], heads, most) for name, kept in chosen.items()}
    return [_group(name, grouped[name], kept, axes, heads) for name, kept in chosen.items()]


def check_indices(what: str, indices: Sequence[int] | None, count: int) -> None:
    """Raise ValueError if an index is out of range."""
    wrong = next((i for i in indices or () if not 0 <= i < count), None)
    if wrong is not None and count:
        raise ValueError(f"there is no {what} {wrong}; the {what}s of this model are 0 to {count - 1}")


def _layers_on_display(
    group: list[list[Request]], axes: tuple[Axis, Axis], layers: Sequence[int] | None, heads: Sequence[int] | None
) -> list[int]:
    kept = range(len(group)) if layers is None else sorted({i for i in layers if i < len(group)})
    return [i for i in kept if heads is None or any(h < group[i][0].n_heads for h in heads)]


def _affordable(
    chosen: list[int], group: list[list[Request]], axes: tuple[Axis, Axis], heads: Sequence[int] | None, most: int
) -> list[int]:
    """Return evenly spread layers whose weights number at most `most`, at least one."""
    count = max(group[i][0].n_heads if heads is None else len(heads) for i in chosen)
    each = count * len(axes[0].rows) * len(axes[1].shown)
    kept = max(1, min(len(chosen), most // max(each, 1)))
    if kept == len(chosen):
        return chosen
    if kept == 1:
        return chosen[-1:]
    return [chosen[round(i * (len(chosen) - 1) / (kept - 1))] for i in range(kept)]


def _group(
    name: str,
    group: list[list[Request]],
    chosen: list[int],
    axes: Mapping[str, tuple[Axis, Axis]],
    heads: Sequence[int] | None,
) -> AttentionGroup:
    query, key = axes[name]
    layers = tuple(layer_weights(group[i], i, query.rows, key.shown, heads) for i in chosen)
    note = "" if len(chosen) == len(group) else f"{len(chosen)} of {len(group)} layers are drawn"
    return AttentionGroup(name, query.name, key.name, layers, len(group), note)


def layer_weights(
    requests: Sequence[Request],
    index: int,
    rows: Sequence[int],
    columns: Sequence[int],
    heads: Sequence[int] | None = None,
) -> LayerAttention:
    """Compute the weights of one layer for some queries, keys and heads of the first sequence of the batch."""
    request, *others = requests
    chosen = tuple(range(request.n_heads)) if heads is None else tuple(h for h in heads if h < request.n_heads)
    at = torch.tensor(list(columns), device=request.q.device)
    weights = tap.weights(request, chosen, rows)[0].index_select(-1, at)
    computed = computed_pairs(request, chosen, rows, columns)
    for other in others:
        places = other.layout.positions[0, :, 0].tolist()
        for row, place in ((rows.index(p), i) for i, p in enumerate(places) if p >= 0 and p in rows):
            weights[:, row] = tap.weights(other, chosen, [place])[0, :, 0].index_select(-1, at)
            if computed is not None:
                computed[:, row] = True
    return LayerAttention(request.name, index, chosen, weights.float().cpu(), computed, request)


def computed_pairs(
    request: Request, heads: Sequence[int], rows: Sequence[int], columns: Sequence[int]
) -> Bool[Tensor, "H T S"] | None:
    """Return which pairs pattern, padding and an infinite bias leave; None if that is all."""
    keep = tap.allowed(request, heads, rows)
    if keep is None:
        return None
    keep = keep[0].expand(-1, -1, request.k.shape[1])
    keep = keep.index_select(-1, torch.tensor(list(columns), device=keep.device)).cpu()
    return None if bool(keep.all()) else keep.expand(len(heads), len(rows), len(columns)).clone()


def mean_weights(
    requests: Sequence[Request], rows: Sequence[int], count: int, at_once: int = 128
) -> Float[Tensor, "T S"]:
    """Return the weights of some queries for all `count` keys, averaged over heads, computed `at_once` rows at a time."""
    means = []
    for start in range(0, len(rows), at_once):
        part = list(rows[start : start + at_once])
        means.append(layer_weights(requests, 0, part, range(count)).weights.mean(0))
    return torch.cat(means)


def _listed(indices: Sequence[int]) -> str:
    return ", ".join(map(str, indices))
