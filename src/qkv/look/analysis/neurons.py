"""Texts that excite a neuron of a feed-forward layer the most."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...core.layout import Layout
from ...core.several import worded
from ...nn.activations import record


@dataclass(frozen=True, order=True)
class Excitation:
    """The largest activation of a neuron in one text: its value, the text's index, and the index of the token.

    `values` are the activations at all tokens of the text.
    """

    value: float
    text: int
    position: int
    values: tuple[float, ...] = field(default=(), compare=False, repr=False)


@torch.no_grad()
@worded
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
    training = model.training
    model.eval()
    try:
        return strongest(_passes(model, batches, layer), neuron, layer, k)
    finally:
        model.train(training)


def _passes(
    model: nn.Module, batches: Iterable[tuple[Int[Tensor, "B T"], Layout | None]], layer: str
) -> Iterator[tuple[Float[Tensor, "B T F"], Layout | None]]:
    for ids, layout in batches:
        with record(model, layer) as at:
            model(ids, layout=layout)
        yield at[layer], layout


def strongest(
    passes: Iterable[tuple[Float[Tensor, "B T F"], Layout | None]], neuron: int, layer: str, k: int
) -> list[Excitation]:
    """Return the k texts in which a neuron is the most active, from activations of passes that were run already.

    `layer` is the name of the activation. Raises ValueError for a neuron that the layer does not have.
    """
    best: list[Excitation] = []
    seen = 0
    for values, layout in passes:
        if not 0 <= neuron < values.shape[-1]:
            raise ValueError(
                f"{layer} has {values.shape[-1]} neurons, from 0 to {values.shape[-1] - 1}; there is no {neuron}"
            )
        one = values[..., neuron].float().cpu()
        valid = torch.ones_like(one, dtype=torch.bool) if layout is None else layout.valid.cpu().expand_as(one)
        top, where = one.masked_fill(~valid, float("-inf")).max(1)
        for i, (value, position) in enumerate(zip(top.tolist(), where.tolist(), strict=True)):
            row = one[i, : int(valid[i].nonzero().max()) + 1] if bool(valid[i].any()) else one[i, :0]
            best.append(Excitation(value, seen + i, position, tuple(row.tolist())))
        best = heapq.nlargest(k, best)
        seen += len(one)
    return best
