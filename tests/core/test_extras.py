"""Records of one pass become losses, class by class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from qkv.core.extras import Extra, Extras, Record


class First:
    @classmethod
    def auxiliary_losses(cls, records: Sequence[tuple[Any, Record]]) -> dict[str, Extra]:
        return {cls.__name__: Extra(torch.stack([record[0] for _, record in records]).sum())}


class Second(First):
    pass


def test_each_class_makes_its_terms_of_all_its_records() -> None:
    extras, one, other = Extras(), First(), Second()
    for layer, number in ((one, 1.0), (other, 10.0), (one, 2.0), (First(), 4.0)):
        extras.add(layer, (torch.tensor(number),))
    assert {name: float(term.value) for name, term in extras.terms().items()} == {"First": 7.0, "Second": 10.0}
    assert all(term.loss is None for term in extras.terms().values()) and Extras().terms() == {}
