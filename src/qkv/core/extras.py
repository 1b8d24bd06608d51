"""Auxiliary losses and statistics of layers, such as the load balance of experts, collected over one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

from torch import Tensor


class Extra(NamedTuple):
    """An auxiliary loss, or a statistic, of one pass.

    value: what is reported: a mean over the real tokens of the pass.
    loss:  what is minimized, already weighted; None for a mere statistic.

    The loss is not a sum over tokens but one value for the pass. With gradient accumulation each micro-batch has its own,
    weighted by its number of labels.
    """

    value: Tensor
    loss: Tensor | None = None


Record = tuple[Tensor, ...]


class Reporter(Protocol):
    """A layer that adds a record to each training pass, from which its class makes losses at the end of the pass."""

    @classmethod
    def auxiliary_losses(cls, records: Sequence[tuple[Self, Record]]) -> dict[str, Extra]: ...


class Extras:
    """The records of one pass, in the order of the layers."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, Record]] = []

    def add(self, layer: Reporter, record: Record) -> None:
        self.records.append((layer, record))

    def terms(self) -> dict[str, Extra]:
        """The losses and statistics of every class of layers, by name."""
        terms: dict[str, Extra] = {}
        classes: list[type[Reporter]] = []
        for layer, _ in self.records:
            if type(layer) not in classes:
                classes.append(type(layer))
        for cls in classes:
            terms |= cls.auxiliary_losses([(layer, record) for layer, record in self.records if type(layer) is cls])
        return terms
