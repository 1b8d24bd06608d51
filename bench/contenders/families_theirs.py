"""A family's model as Hugging Face's transformers computes it, eager, with its usual attention."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor

from . import families
from .plain import PlainStep, facts

transformers.logging.set_verbosity_error()


def build(family: str) -> Any:
    cls = getattr(transformers, families.CONFIGS[family][0])
    torch.manual_seed(0)
    return cls(cls.config_class(**{k: v for k, v in families.config(family).items() if k != "model_type"}))


class Forward:
    """Logits, without gradients."""

    def __init__(self, family: str, batch: int, length: int) -> None:
        self.model = build(family).eval()
        self.model.config.use_cache = False
        given = families.ids(batch, length)
        self.inputs = {"input_ids": given, "attention_mask": torch.ones_like(given)}
        if families.CONFIGS[family][1] == "translate":
            self.inputs["decoder_input_ids"] = given
        self.facts = facts(self.model)

    @torch.no_grad()
    def __call__(self) -> None:
        self.model(**self.inputs)


class TrainingStep(PlainStep):
    """The loss that the model computes itself."""

    def __init__(self, family: str, batch: int, length: int) -> None:
        super().__init__(build(family), "fp32")
        self.model.config.use_cache = False
        self.ids = families.ids(batch, length)

    def loss(self) -> Tensor:
        return self.run(input_ids=self.ids, labels=self.ids).loss


class Decoding:
    """`model.generate`, greedy."""

    def __init__(self, family: str, batch: int, length: int) -> None:
        self.model = build(family).eval()
        self.ids = families.ids(batch, families.PROMPT)
        self.facts = facts(self.model)

    def __call__(self) -> None:
        mask = torch.ones_like(self.ids)
        new = families.NEW
        self.model.generate(
            self.ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False, num_beams=1
        )
