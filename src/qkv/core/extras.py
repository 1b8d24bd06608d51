"""What layers say beside their output: losses of their own, and statistics, collected over one pass by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

from torch import Tensor


class Extra(NamedTuple):
    """One named part of a pass's loss besides that of its labels.

    value: what is reported: a mean over the real tokens of the pass.
    loss:  what is minimized, weighed already; None where the value is a statistic only.

    Such a loss is not a sum over tokens: it is taken over the pass as a whole. With accumulation each batch has its own,
    and weighs as much as its labels do.
    """

    value: Tensor
    loss: Tensor | None = None


Record = tuple[Tensor, ...]


class Reporter(Protocol):
    """A layer that adds one record to each training pass. At the pass's end its class sums up those of all its layers."""

    @classmethod
    def auxiliary_losses(cls, records: Sequence[tuple[Self, Record]]) -> dict[str, Extra]: ...


class Extras:
    """The records of one pass, in the order of the layers."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, Record]] = []

    def add(self, layer: Reporter, record: Record) -> None:
        self.records.append((layer, record))

    def terms(self) -> dict[str, Extra]:
        """Every class of layers sums up its records; names that two classes share are added up."""
        found: dict[str, Extra] = {}
        classes: list[type[Reporter]] = []
        for layer, _ in self.records:
            if type(layer) not in classes:
                classes.append(type(layer))
        for cls in classes:
            found |= cls.auxiliary_losses([(layer, record) for layer, record in self.records if type(layer) is cls])
        return found
