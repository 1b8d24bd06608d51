"""The objective of multiple choice: a soft-max over the scores of the candidates of a question."""

from __future__ import annotations

from torch import nn
from torch.nn import functional as F

from ...core.batch import Batch, Term, Terms
from ...training.objective import Objective


class Choose(Objective, kind="choice"):
    """−log softmax over the scores of an example's candidates, at the right one (Radford et al. 2018, §3.3).

    The model gives one score a row, and the targets' `rows` (B, K) say which are an example's, −1 for none; labels (B,) say
    which of them is right. In nats an example.
    """

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        if batch.labels is None or "rows" not in batch.targets:
            raise ValueError("the objective 'choice' needs examples with candidates; give the task choice")
        scores = model(**batch.inputs)
        if scores.ndim != 2 or scores.shape[1] != 1:
            raise ValueError(
                f"the objective 'choice' needs one score for each candidate, and the model gives {tuple(scores.shape)}; "
                "give it the head sequence-classifier"
            )
        rows = batch.targets["rows"]
        logits = scores[:, 0].float()[rows.clamp(min=0)].masked_fill(rows < 0, float("-inf"))
        return {"loss": Term(F.cross_entropy(logits, batch.labels, reduction="sum"), len(batch.labels))}
