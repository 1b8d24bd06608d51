"""Attention rollout: how much of each input token reaches each token of a layer (Abnar & Zuidema 2020)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ...nn.kernels.request import Request
from .attention import AttentionGroup, LayerAttention, mean_weights
from .axis import Axis

MOST_TOKENS = 1024  # of a sequence; the products are of matrices with this many rows and columns


def rollout(means: Sequence[Float[Tensor, "T T"]]) -> list[Float[Tensor, "T T"]]:
    """Return Ã_l = Â_l Â_{l−1} … Â_1 for each layer l, with Â = (A + I) / 2 and rows that sum to 1.

    A is a layer's attention averaged over its heads; the identity stands for the residual connection. Rows without any
    attention (padding) attend to themselves.
    """
    products: list[Tensor] = []
    for attention in means:
        mixed = attention + torch.eye(len(attention), dtype=attention.dtype)
        mixed = mixed / mixed.sum(-1, keepdim=True)
        products.append(mixed @ products[-1] if products else mixed)
    return products


def rollout_group(name: str, layers: Sequence[Sequence[Request]], axis: Axis) -> AttentionGroup | None:
    """Return the rollout of a stack of self-attention layers as a group with one head for each layer.

    None if the sequence is longer than `MOST_TOKENS`, or a layer attends to other tokens than its own.
    """
    total = axis.total
    fits = all(request.q.shape[1] == request.k.shape[1] == total for request, *_ in layers)
    if total > MOST_TOKENS or not fits or len(layers) < 2:
        return None
    products = rollout([mean_weights(layer, range(total), total) for layer in layers])
    rows, columns = torch.tensor(axis.rows), torch.tensor(axis.shown)
    return AttentionGroup(
        f"{name} rollout",
        axis.name,
        axis.name,
        tuple(
            LayerAttention(f"{name} rollout {i}", i, (0,), product[rows][:, columns][None])
            for i, product in enumerate(products)
        ),
        len(layers),
        "Attention of all layers up to this one multiplied, averaged over heads, with residual connections",
    )
