"""A family's model as qkv computes it, by the same configuration."""

from __future__ import annotations

import torch
from torch import Tensor

from qkv.io.directories.build import Model, build
from qkv.io.families import FAMILIES

from . import families
from .plain import PlainStep, facts


def made(family: str) -> Model:
    return build(FAMILIES[family].spec(families.config(family)), seed=0)


def translates(family: str) -> bool:
    return families.CONFIGS[family][1] == "translate"


class Forward:
    """Logits, without gradients."""

    def __init__(self, family: str, batch: int, length: int) -> None:
        self.model = made(family).eval()
        given = families.ids(batch, length)
        self.inputs = (given, given) if translates(family) else (given,)
        self.mask = torch.ones_like(given)
        self.facts = facts(self.model)

    @torch.no_grad()
    def __call__(self) -> None:
        self.model(*self.inputs, attention_mask=self.mask)


class TrainingStep(PlainStep):
    """The same loop around the loss of the same labels."""

    def __init__(self, family: str, batch: int, length: int) -> None:
        super().__init__(made(family), "fp32")
        given = families.ids(batch, length)
        self.inputs, self.labels = (given,), given
        if translates(family):
            self.inputs = (given, torch.nn.functional.pad(given[:, :-1], (1, 0), value=1))
        elif families.CONFIGS[family][1] == "continue":
            self.labels = torch.nn.functional.pad(given[:, 1:], (0, 1), value=-100)

    def loss(self) -> Tensor:
        sums = self.run(*self.inputs, labels=self.labels)
        return sums.loss / sums.n_labels


class Decoding:
    """`model.generate`, greedy."""

    def __init__(self, family: str, batch: int, length: int) -> None:
        self.model = made(family).eval()
        self.ids = families.ids(batch, families.PROMPT)
        self.start = 1 if translates(family) else None
        self.facts = facts(self.model)

    def __call__(self) -> None:
        self.model.generate(self.ids, max_new_tokens=families.NEW, bos_id=self.start)
