"""The objective of connectionist temporal classification."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from ....core.batch import Batch, Term, Terms
from ....training.objective import Objective


class CTCObjective(Objective, kind="ctc"):
    """−log p(y | x), the sum over all alignments of a text y with the frames x (Graves et al. 2006), in nats for each symbol
    of the texts. The head `ctc` computes it."""

    single_pass: ClassVar[bool] = True

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        if batch.labels is None:
            raise ValueError("the objective 'ctc' needs batches with labels, and this one has none")
        sums = model(**batch.inputs, labels=batch.labels)
        return {"loss": Term(sums.loss, self.counts(batch)["loss"], value=sums.nll)}
