"""Checks of objectives: terms and counts, parts of a batch against the whole, ignored labels, gradients."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import nn

from ..core.batch import IGNORE, Batch, Term
from ..core.layout import Layout
from ..io.directories.build import build
from ..io.families import preset
from ..training.objective import Objective, terms_of
from .batches import examples_in, part_of
from .random_draws import RandomDraws
from .report import NotChecked

TOLERANCE = 1e-5  # relative; losses may be summed in fp32
VOCABULARY, ROWS, WIDTH = 17, 4, 7


def objective_checks(
    objective: Objective, model: nn.Module | None, batches: Sequence[Batch]
) -> dict[str, Callable[[], None]]:
    checks = ObjectiveChecks(objective, model, batches)
    return {
        "terms": checks.terms_and_counts,
        "same twice": checks.same_twice,
        "parts = whole": checks.parts,
        "ignored labels": checks.ignored,
        "gradients": checks.gradients,
    }


class ObjectiveChecks:
    """The checks of one objective, with a model and batches, or with a tiny language model."""

    def __init__(self, objective: Objective, model: nn.Module | None, batches: Sequence[Batch]) -> None:
        self.objective = objective
        self.own = model is None or not batches
        self.model: Any = _language_model() if model is None else copy.deepcopy(model)
        self.batches = list(batches) or [_tokens()]
        self.model.eval()

    @cached_property
    def terms(self) -> list[dict[str, Term]]:
        """The terms of each batch in evaluation."""
        return [self._terms(batch) for batch in self.batches]

    def _terms(self, batch: Batch) -> dict[str, Term]:
        try:
            with torch.no_grad():
                return terms_of(self.objective, self.model, batch)
        except (ValueError, KeyError) as error:
            if not self.own or "it has to give terms" in str(error):
                raise
            raise NotChecked(f"a tiny language model does not suit it ({error}); give `model` and `batches`") from None

    def terms_and_counts(self) -> None:
        """Each term is a finite number and the number of items that the batch says."""
        for batch, terms in zip(self.batches, self.terms, strict=True):
            counts = self.objective.counts(batch)
            assert terms, "there is no term"
            for name, term in terms.items():
                assert term.sum.ndim == 0, (
                    f"the sum of {name!r} has the shape {tuple(term.sum.shape)}; it is one number"
                )
                assert math.isfinite(float(term.sum)), f"the sum of {name!r} is {float(term.sum)}"
                assert term.count >= 0, f"{name!r} counts {term.count} items"
                expected = counts[term.over or name]
                assert term.count == expected, f"{name!r} is over {term.count} items, and `counts` says {expected}"
                assert term.over is None or term.over in terms, f"{name!r} is over {term.over!r}, which is no term"

    def same_twice(self) -> None:
        """In evaluation, a batch has the same terms again."""
        for batch, terms in zip(self.batches, self.terms, strict=True):
            again = self._terms(batch)
            changed = [name for name in terms if not torch.equal(terms[name].sum, again[name].sum)]
            assert not changed, f"the sum of {changed[:1]} differs when the batch is evaluated again"

    def parts(self) -> None:
        """The sums and counts of the parts of a batch add up to the whole's, as micro-batches of a step do."""
        self._needs_items()
        draws = RandomDraws()
        with draws:
            self._terms(self.batches[0])
        if draws.seen:
            raise NotChecked("it draws random numbers in evaluation, other ones for parts of a batch")
        compared = 0
        for batch, terms in zip(self.batches, self.terms, strict=True):
            if examples_in(batch) < 2:
                continue
            split = [part_of(batch, i, i + 1) for i in range(examples_in(batch))]
            of_parts = [self._terms(part) for part in split]
            for name, term in terms.items():
                if term.over not in (None, name):
                    continue  # taken over a batch as a whole
                compared += 1
                count = sum(part[name].count for part in of_parts)
                assert count == term.count, f"{name!r} counts {term.count} items in a batch and {count} in its rows"
                total = sum(float(part[name].sum) for part in of_parts)
                _close(total, float(term.sum), f"the sum of {name!r} over a batch differs from that over its rows")
        if not compared:
            raise NotChecked("no batch has several rows")

    def ignored(self) -> None:
        """A row whose labels are all −100 changes no sum."""
        self._needs_items()
        compared = 0
        for batch in self.batches:
            labels = batch.labels
            if labels is None or labels.is_floating_point() or labels.ndim != 2 or examples_in(batch) < 2:
                continue
            rest = part_of(batch, 0, batch.rows - 1)
            if set(rest.counts) != {"loss"}:
                continue
            blank = labels.clone()
            blank[-1] = IGNORE
            terms = self._terms(replace(batch, labels=blank, counts=dict(rest.counts)))
            for name, term in self._terms(rest).items():
                if term.over not in (None, name) or self.objective.counts(rest)[name] != rest.counts["loss"]:
                    continue  # it does not count labels
                compared += 1
                assert terms[name].count == term.count, f"{name!r} counts labels of −100"
                _close(float(terms[name].sum), float(term.sum), f"labels of −100 change the sum of {name!r}")
        if not compared:
            raise NotChecked("no batch has a label for each token, of which some could be ignored")

    def _needs_items(self) -> None:
        if getattr(self.objective, "scope", "item") != "item":
            raise NotChecked("its terms are of whole micro-batches, which the objective's `scope` says")

    def gradients(self) -> None:
        """Gradients are finite, and not all are 0."""
        assert self.terms
        model = self.model
        model.zero_grad()
        terms = terms_of(self.objective, model, self.batches[0])
        loss = sum(term.weight * term.sum for term in terms.values())
        assert isinstance(loss, torch.Tensor) and loss.requires_grad, (
            "the loss does not depend on the model's parameters"
        )
        torch.autograd.backward(loss)
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        odd = [name for name, gradient in gradients.items() if not gradient.isfinite().all()]
        assert not odd, f"gradients of {', '.join(odd[:3])} are not finite"
        assert any(bool(gradient.any()) for gradient in gradients.values()), "all gradients are 0"


def _close(value: float, expected: float, message: str) -> None:
    right = math.isclose(value, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    assert right, f"{message}: {value:.7g} and {expected:.7g}"


def _language_model() -> nn.Module:
    spec = preset("llama", vocab_size=VOCABULARY, d_model=16, n_layers=1, n_heads=2, d_ff=24, max_positions=16)
    return build(spec, seed=0, dtype=torch.float64)


def _tokens() -> Batch:
    """Rows of unequal lengths, with the next token as the label."""
    ids = torch.randint(0, VOCABULARY, (ROWS, WIDTH + 1), generator=torch.Generator().manual_seed(2))
    lengths = [WIDTH - i for i in range(ROWS)]
    layout = Layout.from_lengths(lengths, WIDTH)
    labels = ids[:, 1:].masked_fill(~layout.valid, IGNORE)
    inputs = {"ids": ids[:, :-1].masked_fill(~layout.valid, 0), "layout": layout}
    return Batch(inputs, labels, {"loss": sum(lengths)}, sum(lengths), ROWS * WIDTH)
