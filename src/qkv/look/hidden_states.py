"""One word in many sentences: its states before the first layer and after each, and how far apart its senses lie there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..core.layout import Layout
from ..models.transformer import TransformerModel

EMBEDDING = "embedding"


@dataclass(frozen=True, eq=False)
class LayerStates:
    """`states[n]` is what a layer gives at the n-th place; the first of a row of these is the embedding's."""

    name: str
    states: Float[Tensor, "N M"]


def layer_states(
    model: TransformerModel, ids: Int[Tensor, "N T"], layout: Layout, places: Sequence[int]
) -> list[LayerStates]:
    """The states of one place in each row: from the token embedding, then from every block.

    Of an encoder–decoder it is the encoder that reads. The model is looked at as it is used, without dropout and
    gradients; its mode is put back afterwards. Position schemes that add to the embedding are in what it gives.
    """
    stack = model.encoder if model.encoder is not None else model.decoder
    assert stack is not None
    rows, at = torch.arange(len(places), device=ids.device), torch.tensor(list(places), device=ids.device)
    found: list[LayerStates] = []

    def keep(module: nn.Module, inputs: object, output: Tensor) -> None:
        name = f"layer {len(found)}" if found else EMBEDDING
        states = stack.placement.leave(output) if output.ndim == 4 else output
        found.append(LayerStates(name, states[rows, at].float().cpu()))

    hooks = [module.register_forward_hook(keep) for module in (stack.embedding, *stack.blocks)]
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            stack(ids, layout)
        return found
    finally:
        model.train(training)
        for handle in hooks:
            handle.remove()


def separation(states: Float[Tensor, "N M"], groups: Sequence[int]) -> float:
    """How far groups lie apart: the mean distance between their centers μ, over the distance of a state from its own center

        mean_{g<h} |μ_g − μ_h| / √(mean_n |x_n − μ_{g(n)}|²)

    0 where the centers are one point, as those of a static vector are; ∞ where each group alone is one point. Raises
    ValueError where there are fewer than two groups.
    """
    of = torch.tensor(list(groups))
    kinds = of.unique()
    if len(kinds) < 2:
        raise ValueError("separation is of two groups or more, and there are fewer")
    states = states.double()
    centers = torch.stack([states[of == kind].mean(0) for kind in kinds])
    own = centers[torch.searchsorted(kinds, of)]
    between = float(nn.functional.pdist(centers).mean())
    within = float((states - own).square().sum(1).mean().sqrt())
    tiny = 1e-6 * float(states.norm(dim=1).mean())  # the rounding of means
    if between <= tiny:
        return 0.0
    return between / within if within > tiny else float("inf")
