"""ELECTRA's objective: binary cross-entropy of replaced tokens, and cross-entropy of the generator."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import nn

from ....core.batch import IGNORE, Batch, Term, Terms
from ....core.metrics.display import register
from ....nn.models.electra import ReplacedTokensHead
from ....training.objective import Objective, extra_terms

register("generator", "Loss of the generator")


class ReplacedTokensObjective(Objective, kind="replaced-tokens"):
    """L = L_generator + λ · L_discriminator (Clark et al. 2020, §2): cross-entropy of the masked tokens under the generator,
    and binary cross-entropy of every real token, replaced or not, under the model. No gradient flows through the sampled
    tokens.

    weight: λ. The term `loss` is the discriminator's, `generator` the other.
    """

    weight: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 50.0

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        head = model.head
        if not isinstance(head, ReplacedTokensHead) or batch.labels is None:
            raise ValueError(
                "the objective 'replaced-tokens' needs a model with a generator and hidden tokens: head=replaced-tokens and "
                "task=replaced-tokens"
            )
        corrupted = head.replace(batch.inputs, batch.labels)
        real = batch.inputs["layout"].valid
        sums = model(**{**batch.inputs, "ids": corrupted.ids}, labels=corrupted.replaced.long().where(real, IGNORE))
        counts = self.counts(batch)
        return {
            "loss": Term(sums.loss, counts["loss"], self.weight, sums.nll),
            "generator": Term(corrupted.sums.loss, counts["generator"], value=corrupted.sums.nll),
            **extra_terms(sums.extras or {}, counts["loss"]),
        }

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"loss": batch.tokens, "generator": batch.counts["loss"]}
