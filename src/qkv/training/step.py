"""One optimizer step: forward and backward over its batches, and one update of the weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.batch import Batch
from ..core.ranks import Ranks, Split, splitting
from ..layers.moe import Mixture
from ..models.base import ModelModule
from ..models.transformer import TransformerModel
from .compiling import compiled
from .gradients.accumulation import over_labels, reported, weighed
from .gradients.clipping import update
from .mixed_precision import MixedPrecision
from .objective import Objective, terms_of
from .settings import Training
from .strategy import Strategy


@dataclass(frozen=True)
class StepResult:
    """The result of an optimizer step. The tensors stay on the device and are not synchronized.

    count:     items that the loss is over; 0 if every label was ignored, and then there was no update.
    tokens:    real tokens in the batches.
    loss:      the minimized loss, per item; `values` are the reported values of the terms.
    grad_norm: before clipping.
    bad:       1.0 where loss or gradients were NaN or infinite and no update was made.
    """

    count: int
    tokens: int
    loss: Tensor
    grad_norm: Tensor
    bad: Tensor
    values: dict[str, Tensor]


class Stepper:
    """Takes optimizer steps with a model, its objective and its optimizer."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        training: Training,
        ranks: Ranks,
        strategy: Strategy | None = None,
    ) -> None:
        self.objective, self.training, self.ranks = objective, training, ranks
        self.strategy = strategy or Strategy(model, ranks)
        self.device = next(model.parameters()).device
        self.optimizer = self.strategy.optimizer(training.optimizer)  # first: what it freezes needs no fp32 masters
        self.mixed = MixedPrecision(training.precision, model, self.device)
        self.lr = training.optimizer.lr
        if isinstance(model, TransformerModel | ModelModule):
            model.recompute(training.recompute)
        self.model = compiled(model, self.device) if training.compile is True else model
        self.balanced = [module for module in model.modules() if isinstance(module, Mixture)]
        self.names: list[str] = []  # of the terms seen so far, which every rank reports in the same order

    def take(self, batches: list[Batch], lr: float) -> StepResult:
        """Minimize Σ_terms weight · Σ_batches,ranks sum ÷ Σ_batches,ranks count at one learning rate."""
        self._set_lr(lr)
        totals, tokens = self._totals(batches)
        if not any(totals.values()):
            nothing = torch.zeros((), device=self.device)
            return StepResult(0, tokens, nothing, nothing, nothing, {})
        loss, values = self._backward(batches, totals)
        clips = self.training.clip_norm, self.training.clip_value
        done = update(self.optimizer, loss, self.mixed, self.strategy, *clips)
        for module in self.balanced:
            module.rebalance()
        return StepResult(max(totals.values()) // self.strategy.copies, tokens, loss, done.grad_norm, done.bad, values)

    def _set_lr(self, lr: float) -> None:
        """Set the learning rate; groups that learn at a share of it keep theirs."""
        self.lr = lr
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group.get("scale", 1.0)

    def _totals(self, batches: list[Batch]) -> tuple[dict[str, int], int]:
        """The divisor of each term in this step, over all batches and ranks, and the number of tokens."""
        totals: Counter[str] = Counter()
        for batch in batches:
            totals.update(self.objective.counts(batch))
        tokens = sum(batch.tokens for batch in batches)
        if self.ranks.size > 1:
            numbers = torch.tensor([tokens, *totals.values()], device=self.device)
            tokens, *summed = self.ranks.sum(numbers).tolist()
            return dict(zip(totals, summed, strict=True)), tokens // self.strategy.copies
        return dict(totals), tokens

    def _backward(self, batches: list[Batch], totals: dict[str, int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the gradients of a step. Returns its loss, and the reported values of the terms."""
        losses, reports = [], []
        for i, batch in enumerate(batches, 1):
            counts = self.objective.counts(batch)
            if self.ranks.size == 1 and not any(counts.values()):
                continue  # with several ranks all of them take part in the communication of each batch
            with splitting(Split(self.strategy.peers, self.strategy.rows, batch.idle)):
                loss, shown = self._one(batch, counts, totals, last=i == len(batches))
            losses.append(loss)
            reports.append(shown)
        self.names = list(dict.fromkeys([*totals, *self.names, *(name for report in reports for name in report)]))
        zero = torch.zeros((), device=self.device)
        parts = [sum(losses, zero), *(sum((r[name] for r in reports if name in r), zero) for name in self.names)]
        loss, *values = self.ranks.sum(torch.stack(parts)).unbind()
        return loss, dict(zip(self.names, values, strict=True))

    def _one(
        self, batch: Batch, counts: dict[str, int], totals: dict[str, int], last: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Forward and backward of one batch. Returns its share of the loss, and of the reported values of the terms."""
        with self.mixed.autocast():
            terms = over_labels(terms_of(self.objective, self.model, batch.to(self.device)), counts)
        loss, shown = weighed(terms, totals), reported(terms, totals)
        if batch.idle:
            loss, shown = loss * 0.0, {name: value * 0.0 for name, value in shown.items()}
        self.strategy.before_backward(last)
        self.mixed.backward(loss)
        self.strategy.after_backward(last)
        return loss.detach(), shown
