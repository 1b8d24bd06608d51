"""The loss of a run on batches of its data, for measuring importance."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from ...core.batch import Batch
from ...runs.recipes.recipe import Recipe
from ...training.objective import terms_of

Loss = Callable[[nn.Module, Batch], Tensor]


def repeated(some: Sequence[Batch], steps: int) -> Iterator[Batch]:
    """The batches over and over, `steps` in all."""
    return itertools.islice(itertools.cycle(some), steps)


def sum_loss(recipe: Recipe) -> Loss:
    """The summed loss of a batch: each term by its weight."""

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return torch.stack(
            [t.weight * t.sum for t in terms_of(recipe.objective, model, batch).values() if t.weight]
        ).sum()

    return loss


def mean_loss(recipe: Recipe) -> Loss:
    """The mean loss of a batch: each term by its weight, over its count."""

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        terms = [t for t in terms_of(recipe.objective, model, batch).values() if t.weight and t.count]
        return torch.stack([t.weight * t.sum / t.count for t in terms]).sum()

    return loss


@torch.no_grad()
def loss_over(recipe: Recipe, model: nn.Module, some: Sequence[Batch]) -> float:
    """The mean loss over batches, every label counting alike."""
    sums: dict[str, list[float]] = {}
    for batch in some:
        for name, term in terms_of(recipe.objective, model, batch).items():
            if term.weight:
                total = sums.setdefault(name, [0.0, 0.0])
                total[0] += term.weight * float(term.sum)
                total[1] += term.count
    return sum(total / max(count, 1) for total, count in sums.values())
