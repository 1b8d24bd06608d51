"""Texts that excite a neuron of a feed-forward layer the most."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn

from ...core.layout import Layout
from ..activations import record


@dataclass(frozen=True, order=True)
class Excitation:
    """The largest activation of a neuron in one text: its value, the text's index, and the index of the token."""

    value: float
    text: int
    position: int


@torch.no_grad()
def top_texts(
    model: nn.Module,
    batches: Iterable[tuple[Int[Tensor, "B T"], Layout | None]],
    neuron: int,
    layer: str = "decoder.layers.0.feedforward.neurons",
    k: int = 10,
) -> list[Excitation]:
    """Return the k texts in which a neuron is the most active, the most active first; texts are numbered in order.

    `layer` is the name of an activation whose last axis the neuron is in. Padding does not count. Raises ValueError for a
    neuron that the layer does not have.
    """
    best: list[Excitation] = []
    seen = 0
    training = model.training
    model.eval()
    try:
        for ids, layout in batches:
            with record(model, layer) as at:
                model(ids, layout=layout)
            values = at[layer]
            if not 0 <= neuron < values.shape[-1]:
                raise ValueError(
                    f"{layer} has {values.shape[-1]} neurons, from 0 to {values.shape[-1] - 1}; there is no {neuron}"
                )
            one = values[..., neuron].float()
            if layout is not None and layout.padding != "none":
                one = one.masked_fill(~layout.valid, float("-inf"))
            top, where = one.max(1)
            found = (
                Excitation(v, seen + i, p) for i, (v, p) in enumerate(zip(top.tolist(), where.tolist(), strict=True))
            )
            best = heapq.nlargest(k, [*best, *found])
            seen += len(ids)
        return best
    finally:
        model.train(training)
