"""Objectives that compare every pair of a step, and `cached`, by which they do so over accumulated batches and ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..core.batch import Batch, Term, Terms
from ..core.ranks import concatenate, current_rows, idle
from .checkpoints import rng
from .objective import Objective

CACHED = "cached step"  # the target of a batch that holds its `CachedStep`


class PairVectors(NamedTuple):
    """The vectors u_i and v_i of pairs i, and what else a loss reads of a model: numbers that it learns, by name."""

    u: Float[Tensor, "B M"]
    v: Float[Tensor, "B M"]
    learned: dict[str, Tensor]


class PairObjective(Objective):
    """Base class of objectives that compare u_i with v_j for all pairs i and j of a step.

    The pairs are from all accumulated batches and all ranks, so the loss is the loss of one large batch. A step of one batch
    gathers the vectors of all ranks, with gradients. A step of several batches runs the model twice (GradCache; Gao et
    al. 2021). The first run, without gradients, gives all vectors and the gradients of the loss with respect to them. The
    second, batch by batch, backpropagates these gradients through the model.
    """

    scope: ClassVar[str] = "step"

    def vectors(self, model: nn.Module, batch: Batch) -> PairVectors:
        """The vectors of a batch. Raises ValueError if the batch has no pairs, or the model gives no vectors."""
        raise NotImplementedError(f"{type(self).__name__} does not say which vectors it compares")

    def loss(self, own: PairVectors, u: Float[Tensor, "N M"], v: Float[Tensor, "N M"], start: int) -> Tensor:
        """The sum of the losses of some pairs, which are the pairs `start` … of all N."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its loss is")

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        own, step = self.vectors(model, batch), batch.targets.get(CACHED)
        if step is None:
            (u, start), (v, _) = concatenate(own.u), concatenate(own.v)
            return {"loss": Term(self.loss(own, u, v, start), len(own.u))}
        return {"loss": Term(step.loss(self, own), len(own.u))}


def pair_numbers(own: PairVectors, all_pairs: Tensor, start: int) -> Int[Tensor, " B"]:
    """The numbers of some pairs among all. A rank without pairs, whose loss does not count, gets numbers that exist."""
    numbers = torch.arange(start, start + len(own.u), device=own.u.device)
    return numbers.clamp(max=len(all_pairs) - 1)


@dataclass(frozen=True, eq=False)
class CachedStep:
    """What a batch needs to know of its step: the vectors of all pairs, as numbers, the index of the batch's first pair, and
    the gradients of the step's loss for its vectors."""

    u: Float[Tensor, "N M"]
    v: Float[Tensor, "N M"]
    start: int
    of_u: Float[Tensor, "B M"]
    of_v: Float[Tensor, "B M"]

    def loss(self, objective: PairObjective, own: PairVectors) -> Tensor:
        """The loss of the batch's pairs. Its gradient for their vectors is that of the whole step's loss, in which they are
        compared with other batches' vectors too; its gradient for what is learned is its own."""
        if not len(self.of_u):  # an idle rank's rows, which no loss counts
            return 0.0 * (own.u.sum() + own.v.sum() + sum(value.sum() for value in own.learned.values()))
        rows = slice(self.start, self.start + len(own.u))
        loss = objective.loss(PairVectors(self.u[rows], self.v[rows], own.learned), self.u, self.v, self.start)
        through = (own.u * self.of_u).sum() + (own.v * self.of_v).sum()
        return loss + through - through.detach()


def cached(
    objective: PairObjective,
    model: nn.Module,
    batches: Sequence[Batch],
    device: torch.device,
    entering: Callable[[Batch], AbstractContextManager[Any]],
) -> list[Batch]:
    """The batches of a step, each with its `CachedStep`. `entering` is the context that the model computes a batch in."""
    parts: list[PairVectors] = []
    with rng.preserved(), torch.no_grad():  # the second pass has the same dropout
        for batch in batches:
            with entering(batch):
                pairs = objective.vectors(model, batch.to(device))
                parts.append(PairVectors(pairs.u[:0], pairs.v[:0], pairs.learned) if idle() else pairs)
    sizes = [len(part.u) for part in parts]
    with entering(replace(batches[0], idle=False)):
        rows = current_rows()
        with torch.no_grad():
            (u, start), (v, _) = (
                concatenate(torch.cat(side)) for side in zip(*((p.u, p.v) for p in parts), strict=True)
            )
        stop = start + sum(sizes)
        u, v = u.detach().requires_grad_(), v.detach().requires_grad_()
        with torch.enable_grad():
            own = PairVectors(u[start:stop], v[start:stop], parts[0].learned)
            loss = objective.loss(own, u, v, start) if sum(sizes) else 0.0 * (u.sum() + v.sum())
        gradients = [rows.sum(one)[start:stop].split(sizes) for one in torch.autograd.grad(loss, (u, v))]
    u, v = u.detach(), v.detach()
    return [
        replace(batch, targets={**batch.targets, CACHED: CachedStep(u, v, start + sum(sizes[:i]), of_u, of_v)})
        for i, (batch, of_u, of_v) in enumerate(zip(batches, *gradients, strict=True))
    ]
