"""Objectives: loss functions of a model and a batch that return named terms.

A new objective is a subclass with a `kind` and a `__call__`; nothing else has to know of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import nn

from ..core.batch import Batch, Term, Terms
from ..core.extras import Extra
from ..core.spec import Spec
from ..nn.layers.losses import LossSums

Smoothing = Annotated[float, Field(ge=0.0, lt=1.0)]


class Objective(Spec, role="objective"):
    """`objective(model, batch)` gives the terms whose weighted sum an optimizer step minimizes.

    A term of any name may count `batch.counts[name]` items, or the batch's labels if the task counts nothing of that
    name. What is divided by another number says it in `counts`.

    `predicts_next`: labels are tokens that come after what the decoder may see.
    `single_pass`: the model runs one forward pass for each batch, which a pipeline of ranks needs.
    `generates`: the model writes outputs in training, which it does on one rank.
    """

    predicts_next: ClassVar[bool] = False
    single_pass: ClassVar[bool] = False
    generates: ClassVar[bool] = False

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        raise NotImplementedError(f"{type(self).__name__} does not say what its loss is")

    def counts(self, batch: Batch) -> dict[str, int]:
        """By how many items each term is divided. Asked before the forward pass, so a step knows its totals."""
        return batch.counts


for kind in ("minimum-risk", "reinforce"):
    Objective.kinds.later(kind, "qkv.training.sequence_risk")  # which generates


def terms_of(objective: Objective, model: nn.Module, batch: Batch) -> Terms:
    """Compute the terms of an objective. Raises ValueError if it returns anything else."""
    terms: Any = objective(model, batch)
    named = isinstance(terms, Mapping)
    odd = [value for value in (terms.values() if named else (terms,)) if not isinstance(value, Term)]
    if named and not odd:
        return dict(terms)
    raise ValueError(
        f"the objective {objective.kind!r} gives {'values of type ' * named}"
        f"{type(odd[0]).__name__}; it has to give terms by name, each a sum and the number of items that it is over: "
        '{"loss": Term(sum, count)}, with qkv.core.batch.Term'
    )


class LabelObjective(Objective):
    """Cross-entropy of the batch's labels under the model, smoothed, over every label that is not −100.

    With smoothing ε over V words a label y costs −(1 − ε) log p(y) − ε/V Σ_v log p(v) (Szegedy et al. 2016; the
    Transformer paper uses ε = 0.1). The term's `value` is the plain negative log-likelihood, in nats.

    `z_loss` ζ adds ζ · log² Z in training, Z = Σ_v exp(logit_v), which keeps logits from drifting (Chowdhery et al.
    2022: 1e-4). It is part of the term `loss`; the term `z` reports the mean of log² Z, without smoothing. Layers add
    further terms in training, such as the balance of experts.
    """

    single_pass: ClassVar[bool] = True

    label_smoothing: Smoothing = 0.0
    z_loss: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        if batch.labels is None:
            raise ValueError(f"the objective {self.kind!r} needs batches with labels, and this one has none")
        return self.terms(model(**batch.inputs, labels=batch.labels, **self.asked(model)), batch, model.training)

    def asked(self, model: nn.Module) -> dict[str, float]:
        """Arguments of the model's forward pass for its loss, besides the labels."""
        z_loss = {"z_loss": self.z_loss} if self.z_loss and model.training else {}
        return {"label_smoothing": self.label_smoothing, **z_loss}

    def terms(self, sums: LossSums, batch: Batch, training: bool) -> Terms:
        """The terms of what the model gave."""
        count = self.counts(batch)["loss"]
        terms = {"loss": Term(sums.loss, count, value=sums.nll), **extra_terms(sums.extras or {}, count)}
        if self.z_loss and training and not self.label_smoothing:
            log_z = (sums.loss.detach() - sums.nll) / self.z_loss
            terms["z"] = Term(log_z, count, weight=0.0, over="loss")
        return terms


def extra_terms(extras: Mapping[str, Extra], count: int) -> Terms:
    """The auxiliary losses of layers as terms, weighted as `count` labels; statistics get weight 0."""
    return {
        name: Term(
            (extra.value if extra.loss is None else extra.loss) * count,
            count,
            weight=0.0 if extra.loss is None else 1.0,
            value=extra.value.detach() * count,
            over="loss",
        )
        for name, extra in extras.items()
    }


class Labels(LabelObjective, kind="labels"):
    """What the head makes of the labels that the task gave: classes, tags, spans, numbers, pixels."""


class NextToken(LabelObjective, kind="next-token"):
    """Language modeling: each token is predicted from those before it."""

    predicts_next = True


class SequenceToSequence(LabelObjective, kind="sequence-to-sequence"):
    """Each target token is predicted from the whole source and the target tokens before it."""

    label_smoothing: Smoothing = 0.1
    predicts_next = True

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        if "target" not in batch.inputs:
            raise ValueError("the objective 'sequence-to-sequence' needs pairs; this data has no target side")
        return super().__call__(model, batch)
