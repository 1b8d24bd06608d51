"""Hidden states of a word in many sentences, layer by layer, and how well its senses are separated there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..core.layout import Layout
from ..nn.attention.own_calls import hooked
from ..nn.models.transformer import TransformerModel

EMBEDDING = "embedding"


@dataclass(frozen=True, eq=False)
class LayerStates:
    """Output of a layer, or of the embedding: `states[n]` at the chosen token of row n."""

    name: str
    states: Float[Tensor, "N M"]


def layer_states(
    model: TransformerModel, ids: Int[Tensor, "N T"], layout: Layout, places: Sequence[int]
) -> list[LayerStates]:
    """Return the states of one token in each row, at the index `places[n]`: of the embedding, then of every block.

    For an encoder–decoder these are states of the encoder. The model runs in evaluation mode without gradients; its mode is
    restored. The embedding includes positions that are added to it.
    """
    stack = model.encoder if model.encoder is not None else model.decoder
    assert stack is not None
    rows, at = torch.arange(len(places), device=ids.device), torch.tensor(list(places), device=ids.device)
    layers: list[LayerStates] = []

    def keep(module: nn.Module, inputs: object, output: Tensor) -> None:
        name = f"layer {len(layers)}" if layers else EMBEDDING
        states = stack.placement.leave(output) if output.ndim == 4 else output
        layers.append(LayerStates(name, states[rows, at].float().cpu()))

    training = model.training
    model.eval()
    try:
        with torch.no_grad(), hooked((module, keep) for module in (stack.embedding, *stack.blocks)):
            stack(ids, layout)
        return layers
    finally:
        model.train(training)


def separation(states: Float[Tensor, "N M"], groups: Sequence[int]) -> float:
    """Return the mean distance between centers μ of groups, over the distance of states from the center of their group:

        mean_{g<h} |μ_g − μ_h| / √(mean_n |x_n − μ_{g(n)}|²)

    0 if all centers are equal, as with static word vectors; ∞ if the states of each group are equal. Raises ValueError
    for fewer than two groups.
    """
    kinds, group = torch.tensor(list(groups)).unique(return_inverse=True)
    if len(kinds) < 2:
        raise ValueError("separation needs states of at least two groups; give another group")
    states = states.double()
    centers = torch.stack([states[group == i].mean(0) for i in range(len(kinds))])
    own = centers[group]
    between = float(nn.functional.pdist(centers).mean())
    within = float((states - own).square().sum(1).mean().sqrt())
    tiny = 1e-6 * float(states.norm(dim=1).mean())  # the rounding of means
    if between <= tiny:
        return 0.0
    return between / within if within > tiny else float("inf")
