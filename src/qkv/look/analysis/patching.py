"""Activation patching: which layer and position carries what tells two texts apart (Vig et al. 2020; Meng et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...core.several import checked, worded
from ...core.spec import brief
from ...nn.activations import intervene, record, sites
from ...nn.activations.sites import select

Metric = Callable[[Tensor], Float[Tensor, " B"]]

ROWS = 64  # positions that are patched in one pass


@dataclass(frozen=True, eq=False)
class Patching:
    """Effect of patching each layer at each position.

    names:     of the patched activations, one for each row of `effect`.
    effect:    (metric with the patch − metric of the corrupted text) / (metric of the clean − of the corrupted text):
               1 where the patch restores the clean output, 0 where it changes nothing.
    clean, corrupted: the metric of both texts.
    """

    names: tuple[str, ...]
    effect: Float[Tensor, "L T"]
    clean: float
    corrupted: float


@torch.no_grad()
@worded
def activation_patching(
    model: nn.Module,
    clean: Sequence[Int[Tensor, "1 T"]],
    corrupted: Sequence[Int[Tensor, "1 T"]],
    metric: Metric,
    names: str = "decoder.layers.*.output",
) -> Patching:
    """Run the corrupted text with one activation of the clean text in its place, for every layer and position in turn.

    `clean` and `corrupted` are the inputs of the model, one row each: the ids, or the ids of source and target.
    `metric` maps the logits of a batch to one number for each row (`logit_difference`). `names` may be any activation
    with
    positions: `…attention.heads`, `encoder.layers.*.output`. Positions are rows of one batch: T / 64 passes for a layer.

    Raises ValueError for texts of different lengths, and for a metric that is equal for both.
    """
    lengths = [[tuple(ids.shape) for ids in side] for side in (clean, corrupted)]
    if lengths[0] != lengths[1]:
        shown = " and ".join(", ".join(str(shape[-1]) for shape in side) for side in lengths)
        raise ValueError(
            f"patching puts a token of one text in the place of that of another, and these have {shown} tokens; choose "
            "texts with equally many"
        )
    chosen = list(select(sites(model), [names]))
    training = model.training
    model.eval()
    try:
        with record(model, names) as at:
            best = float(metric(model(*clean))[0])
        worst = float(metric(model(*corrupted))[0])
        if best == worst:
            raise ValueError("the metric is equal for the clean and the corrupted text, so no patch can restore it")
        effect = torch.stack([_of_layer(model, corrupted, metric, site.name, at[site.name]) for site in chosen])
        return Patching(tuple(site.name for site in chosen), (effect - worst) / (best - worst), best, worst)
    finally:
        model.train(training)


@checked
def logit_difference(answer: int, other: int, position: int = -1) -> Metric:
    """A metric: the logit of one token less that of another, at a position."""

    def difference(logits: Tensor) -> Tensor:
        sizes = {
            "position": (position, logits.shape[1]),
            "answer": (answer, logits.shape[2]),
            "other": (other, logits.shape[2]),
        }
        for what, (index, size) in sizes.items():
            if not -size <= index < size:
                raise ValueError(f"{what} is {brief(index)}, and the logits have {size:,} of them, numbered from 0")
        return (logits[:, position, answer] - logits[:, position, other]).float()

    return difference


def _of_layer(
    model: nn.Module, corrupted: Sequence[Tensor], metric: Metric, name: str, clean: Tensor
) -> Float[Tensor, " T"]:
    """The metric with each position of one activation patched."""
    length = clean.shape[1]
    parts = []
    for start in range(0, length, ROWS):
        at = torch.arange(start, min(start + ROWS, length), device=clean.device)
        rows = torch.arange(len(at), device=clean.device)

        def patch(x: Tensor, at: Tensor = at, rows: Tensor = rows) -> Tensor:
            x = x.clone()
            x[rows, at] = clean[0, at]
            return x

        with intervene(model, {name: patch}):
            parts.append(metric(model(*(ids.expand(len(at), -1) for ids in corrupted))))
    return torch.cat(parts).float().cpu()
