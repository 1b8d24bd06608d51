"""The matrices in the weights of layers: one in a linear layer, and in a layer of experts one of each expert.

A matrix has a name: the path of its layer, and for an expert also its number, `decoder.blocks.0.feedforward.up.3`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from ...layers.grouped_linear import GroupedLinear


class QuantizedPart(NamedTuple):
    """A matrix (d_out, d_in) of a layer; `expert` is None in a linear layer."""

    path: str
    expert: int | None
    weight: Tensor


def experts_of(layer: nn.Module) -> int | None:
    """The number of matrices in the weight of a layer of experts; None for other layers."""
    return layer.n_experts if isinstance(layer, GroupedLinear) else None


def names(path: str, layer: nn.Module) -> list[str]:
    """The names of a layer's matrices."""
    count = experts_of(layer)
    return [path] if count is None else [f"{path}.{e}" for e in range(count)]


def parts(layers: Mapping[str, Any]) -> dict[str, QuantizedPart]:
    """All matrices of layers by their names."""
    found: dict[str, QuantizedPart] = {}
    for path, layer in layers.items():
        if experts_of(layer) is None:
            found[path] = QuantizedPart(path, None, layer.weight)
        else:
            found |= {name: QuantizedPart(path, e, layer.weight[e]) for e, name in enumerate(names(path, layer))}
    return found
