"""Sum an objective's terms over the batches of an evaluation; perplexity and bits per byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...core.batch import Terms
from ...core.metrics import text as text_metrics
from ..recipes.evaluation import Metric


class TermValue(NamedTuple):
    """The value that a term of the objective reports for one batch."""

    value: float
    over: int
    weight: float


@dataclass
class TermSums:
    """The terms of an objective, summed up over batches."""

    sums: dict[str, list[float]] = field(default_factory=dict)  # the sum and the count of each
    weights: dict[str, float] = field(default_factory=dict)

    def add(self, values: Mapping[str, TermValue]) -> None:
        for name, (value, count, weight) in values.items():
            total = self.sums.setdefault(name, [0.0, 0.0])
            total[0] += value
            total[1] += count
            self.weights[name] = weight

    @property
    def means(self) -> dict[str, float]:
        """The mean of each term over its count. Raises ValueError if all counts are zero."""
        means = {name: total / count for name, (total, count) in self.sums.items() if count}
        if not means:
            raise ValueError("these examples have no label that counts toward the loss; evaluate on others")
        return means


def values_of(terms: Terms) -> dict[str, TermValue]:
    """The terms of a batch as numbers: the likelihood without label smoothing."""
    return {
        name: TermValue(float(term.sum if term.value is None else term.value), term.count, term.weight)
        for name, term in terms.items()
    }


@dataclass
class Likelihood:
    """Sums over an evaluation: the objective's terms, `size` in UTF-8 bytes, rows and examples."""

    terms: TermSums = field(default_factory=TermSums)
    size: int = 0
    rows: int = 0
    examples: int = 0

    def results(self, wanted: tuple[Metric, ...]) -> dict[str, text_metrics.MetricValue]:
        """The means of all terms, and perplexity and bits per byte from the term `loss`, the likelihood of the tokens.

        If the objective has no such term, its loss is the weighted sum of its terms, and it has no perplexity.
        """
        means = self.terms.means
        total = sum(self.terms.weights[name] * mean for name, mean in means.items())
        values = {name: text_metrics.MetricValue(mean, "") for name, mean in {"loss": total, **means}.items()}
        nll, count = self.terms.sums.get("loss", (0.0, 0))
        if "perplexity" in wanted and count:
            values["perplexity"] = text_metrics.MetricValue(text_metrics.perplexity(nll, int(count)), "")
        if "bits-per-byte" in wanted and count and self.size:
            values["bits_per_byte"] = text_metrics.MetricValue(text_metrics.bits_per_byte(nll, self.size), "")
        return values
