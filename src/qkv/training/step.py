"""One optimizer step: forward and backward over its batches, and one update of the weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..core.batch import Batch, to_device
from ..core.ranks import BatchSplit, Ranks, splitting
from ..nn.cost.plan.rules import check_objective
from ..nn.layers.moe import Mixture
from ..nn.models.base import ModelModule
from ..nn.models.transformer import TransformerModel
from .checkpoints import rng
from .compiling import compiled
from .gradients.accumulation import Totals, over_labels, reported, weighed
from .gradients.clipping import update
from .mixed_precision import MixedPrecision, autocast_dtype
from .objective import Objective, terms_of
from .pairs import PairObjective, cached
from .settings import Training
from .strategy import Strategy


@dataclass(frozen=True)
class StepResult:
    """The result of an optimizer step. The tensors stay on the device and are not synchronized.

    counted:   the number of items that the loss is over (0 if every label was ignored, and then there was no update), and
               the number of real tokens in the batches. With several ranks it is a tensor.
    loss:      the minimized loss, per item; `values` are the reported values of the terms.
    grad_norm: before clipping.
    bad:       1.0 if loss or gradients were NaN or infinite and no update was made.
    """

    counted: tuple[int, int] | Tensor
    loss: Tensor
    grad_norm: Tensor
    bad: Tensor
    values: dict[str, Tensor]

    @property
    def count(self) -> int:
        """The number of items. With several ranks this waits for the device, as `tokens` does."""
        return int(self.counted[0])

    @property
    def tokens(self) -> int:
        return int(self.counted[1])


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
        check_objective(self.strategy.stages, objective.kind, objective.single_pass)
        if objective.generates and ranks.size > 1:
            raise ValueError(
                f"the objective {objective.kind!r} samples outputs on one rank, not {ranks.size}; leave out scale"
            )
        self.device = self.strategy.device
        dtype = autocast_dtype(training.precision, model, self.device)
        self.optimizer = self.strategy.optimizer(
            training.optimizer, dtype
        )  # first: what it freezes needs no fp32 masters
        self.mixed = MixedPrecision(training.precision, model, self.device)
        self.strategy.prepare()
        self.lr = training.optimizer.lr
        if isinstance(model, TransformerModel | ModelModule):
            model.recompute(training.recompute)
        self.model = compiled(model, self.device) if training.compile is True else model
        self.draws_alike = (
            self.device.type == "cpu" and training.compile is not True
        )  # on all ranks, see `rng.seed_rank`
        self.balanced = [module for module in model.modules() if isinstance(module, Mixture)]
        self.names: list[str] = []  # of the terms seen so far, which every rank reports in the same order

    def take(self, batches: list[Batch], lr: float) -> StepResult:
        """Minimize Σ_terms weight · Σ_batches,ranks sum ÷ Σ_batches,ranks count at one learning rate."""
        self._set_lr(lr)
        totals, counted = self._totals(batches)
        if isinstance(counted, tuple) and not counted[0]:
            nothing = torch.zeros((), device=self.device)
            return StepResult(counted, nothing, nothing, nothing, {})
        with self._seeded(batches) as seeded:
            loss, values = self._backward(self._with_pairs(seeded), totals)
        clips = self.training.clip_norm, self.training.clip_value
        empty = counted[0] == 0 if isinstance(counted, Tensor) else None
        done = update(self.optimizer, loss, self.mixed, self.strategy, *clips, empty=empty)
        for module in self.balanced:
            module.rebalance(empty)
        return StepResult(counted, loss, done.grad_norm, done.bad, values)

    @contextmanager
    def _seeded(self, batches: list[Batch]) -> Iterator[list[Batch]]:
        """Yield the batches, each with a seed for its random numbers. Afterwards, restore the default generator to its state
        after drawing the seeds. In graphs and on devices other than CPUs, yield the batches without seeds."""
        if not self.draws_alike:
            yield batches
            return
        seeds = torch.randint(1 << 62, (len(batches),), device="cpu").tolist()
        state = torch.get_rng_state()
        try:
            yield [replace(batch, seed=seed) for batch, seed in zip(batches, seeds, strict=True)]
        finally:
            torch.set_rng_state(state)

    def rehearse(self, batch: Batch) -> None:
        """Run forward and backward over a batch as a step does, and leave no trace: for timing, on one rank."""
        counts = self.objective.counts(batch)
        if not any(counts.values()):
            return
        with rng.preserved(), self._keeping_state(), self._splitting(batch):
            loss, _ = self._loss(batch, counts, counts)
            loss.backward()
        self.optimizer.zero_grad(set_to_none=True)

    @contextmanager
    def _keeping_state(self) -> Iterator[None]:
        """Undo what forward passes inside the block do to buffers and to the loads of experts."""
        loads = [module.load for module in self.balanced]
        kept = [buffer.clone() for buffer in self.model.buffers()]
        for module in self.balanced:
            module.load = None
        yield
        with torch.no_grad():
            for buffer, before in zip(self.model.buffers(), kept, strict=True):
                buffer.copy_(before)
        for module, load in zip(self.balanced, loads, strict=True):
            module.load = load

    def _with_pairs(self, batches: list[Batch]) -> list[Batch]:
        """The batches; if the objective compares the pairs of several, with the vectors of all of them."""
        if not isinstance(self.objective, PairObjective) or len(batches) == 1:
            return batches

        @contextmanager
        def entering(batch: Batch) -> Iterator[None]:
            with self._splitting(batch), self.mixed.autocast():
                yield

        counts = [self.objective.counts(batch) for batch in batches]
        counted = [i for i, n in enumerate(counts) if self.ranks.size > 1 or any(n.values())]
        with self._keeping_state():
            made = cached(self.objective, self.model, [batches[i] for i in counted], self.device, entering)
        whole = dict(zip(counted, made, strict=True))
        return [whole.get(i, batch) for i, batch in enumerate(batches)]

    def _set_lr(self, lr: float) -> None:
        """Set the learning rate; groups that learn at a share of it keep theirs."""
        self.lr = lr
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group.get("scale", 1.0)

    def _totals(self, batches: list[Batch]) -> tuple[Totals, tuple[int, int] | Tensor]:
        """The divisor of each term in this step, over all batches and ranks, and `StepResult.counted`.

        With several ranks these stay on the device, so the host does not wait for them.
        """
        totals: Counter[str] = Counter()
        for batch in batches:
            totals.update(self.objective.counts(batch))
        tokens = sum(batch.tokens for batch in batches)
        if self.ranks.size == 1:
            return dict(totals), (max(totals.values(), default=0), tokens)
        numbers = to_device(torch.tensor([tokens, *totals.values()], dtype=torch.float64), self.device)
        # Every stage counts the labels, of which the last has the loss.
        tokens_everywhere, *summed = (self.ranks.sum(numbers) / self.strategy.stages).unbind()
        counted = torch.stack([torch.stack(summed).max(), tokens_everywhere]) / self.strategy.copies
        return dict(zip(totals, summed, strict=True)), counted

    def _backward(self, batches: list[Batch], totals: Totals) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the gradients of a step. Returns its loss, and the reported values of the terms."""
        losses, reports = [], []
        counts = [self.objective.counts(batch) for batch in batches]
        # With several ranks all of them take part in the communication of each batch.
        counted = [i for i, n in enumerate(counts) if self.ranks.size > 1 or any(n.values())]

        def forward(at: int) -> Tensor:
            i = counted[at]
            with self._splitting(batches[i]):
                loss, shown = self._loss(batches[i], counts[i], totals)
            losses.append(loss.detach())
            reports.append(shown)
            return loss

        @contextmanager
        def around(at: int, complete: bool = True) -> Iterator[None]:
            last = counted[at] == len(batches) - 1
            with self._splitting(batches[counted[at]]):
                if complete:
                    self.strategy.before_backward(last)
                yield
                if complete:
                    self.strategy.after_backward(last)

        self.strategy.run([batches[i].shapes for i in counted], forward, around, self.mixed.backward)
        seen = [*totals, *self.names, *(name for report in reports for name in report)]
        self.names = self.strategy.agreed(list(dict.fromkeys(seen)), frozenset(totals))
        zero = torch.zeros((), device=self.device)
        parts = [sum(losses, zero), *(sum((r[name] for r in reports if name in r), zero) for name in self.names)]
        sums = torch.stack(parts)
        loss, *values = self.ranks.sum(sums if self.strategy.stages == 1 else sums.double()).unbind()
        return loss, dict(zip(self.names, values, strict=True))

    def _splitting(self, batch: Batch) -> AbstractContextManager[None]:
        return splitting(BatchSplit(self.strategy.peers, self.strategy.rows, batch.idle, batch.first_row, batch.seed))

    def _loss(self, batch: Batch, counts: dict[str, int], totals: Totals) -> tuple[Tensor, dict[str, Tensor]]:
        """A batch's share of the loss, and of the reported values of the terms."""
        with self.mixed.autocast():
            terms = over_labels(terms_of(self.objective, self.model, batch.to(self.device)), counts)
        loss, shown = weighed(terms, totals), reported(terms, totals)
        if batch.idle:
            return loss * 0.0, {name: value * 0.0 for name, value in shown.items()}
        return loss, shown
