"""Gradient accumulation: weights by which the losses of several batches sum to the loss of one large batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ...core.batch import Terms
from ...core.spec import brief

Totals = Mapping[str, int] | Mapping[str, Tensor]
"""The divisor of each term's sum: the number of its items in all batches of a step, on all ranks."""


def over_labels(terms: Terms, counts: dict[str, int]) -> Terms:
    """One batch's terms. Those without their own count that count as many as `loss` does are divided by its total."""
    labels = counts.get("loss")
    return {
        name: replace(term, over="loss") if term.over is None and name not in counts and term.count == labels else term
        for name, term in terms.items()
    }


def weighed(terms: Terms, totals: Totals) -> Tensor:
    """Σ weight · sum ÷ total over the terms of one batch."""
    loss: Tensor | None = None
    for name, term in terms.items():
        if (term.over or name) not in totals:
            raise ValueError(
                f"the objective's term {brief(name)} has no count before the forward pass; its counts() must say"
            )
        part = term.sum * (term.weight / _divisor(totals[term.over or name], term.sum))
        loss = part if loss is None else loss + part
    if loss is None:
        raise ValueError("the objective gave no loss term")
    return loss


def reported(terms: Terms, totals: Totals) -> dict[str, Tensor]:
    """One batch's share of what each term reports."""
    values = {name: term.sum if term.value is None else term.value for name, term in terms.items()}
    return {name: value.detach() / _divisor(totals[terms[name].over or name], value) for name, value in values.items()}


def _divisor(total: int | Tensor, of: Tensor) -> int | Tensor:
    """The total by which a sum is divided, or 1 if there is nothing."""
    if isinstance(total, Tensor):
        return total.clamp(min=1.0).to(torch.promote_types(of.dtype, torch.float32))
    return max(total, 1)
