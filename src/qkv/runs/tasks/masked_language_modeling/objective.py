"""BERT's objective: cross-entropy of masked tokens and of next-sentence prediction."""

from __future__ import annotations

from torch import nn

from ....core.batch import Batch, Term, Terms
from ....core.metrics.display import register
from ....training.objective import LabelObjective
from .metric import NEXT

register("next_sentence", "Loss of next sentences")


class MaskedLanguageModelObjective(LabelObjective, kind="masked-language-model"):
    """Cross-entropy of the masked tokens, plus that of next-sentence prediction if the batch has pairs (Devlin et al. 2019,
    §3.1): the sum of the means over tokens and over pairs, from one forward pass.
    """

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        if NEXT not in batch.targets:
            return super().__call__(model, batch)
        classes = batch.targets[NEXT]
        sums, pairs = model(**batch.inputs, labels=batch.labels, classes=classes, **self.asked(model))
        count = self.counts(batch)[NEXT]
        return self.terms(sums, batch, model.training) | {NEXT: Term(pairs.loss, count, value=pairs.nll)}
