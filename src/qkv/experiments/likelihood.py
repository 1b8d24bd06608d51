"""Sum an objective's terms over the batches of an evaluation; perplexity and bits per byte."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..core.batch import Term, Terms
from ..metrics import text as metrics
from ..recipes.evaluation import Metric


@dataclass
class TermSums:
    """The terms of an objective, summed up over batches."""

    sums: dict[str, list[float]] = field(default_factory=dict)  # the sum and the count of each
    weights: dict[str, float] = field(default_factory=dict)

    def add(self, terms: Terms) -> None:
        for name, term in terms.items():
            total = self.sums.setdefault(name, [0.0, 0.0])
            total[0] += value_of(term)
            total[1] += term.count
            self.weights[name] = term.weight

    @property
    def means(self) -> dict[str, float]:
        """Each term for each of what it counts. Raises ValueError where nothing counts."""
        found = {name: total / count for name, (total, count) in self.sums.items() if count}
        if not found:
            raise ValueError("no label counts in these examples, so there is nothing to measure")
        return found


def value_of(term: Term) -> float:
    """What a term reports: the plain likelihood, where label smoothing is what is minimized."""
    return float(term.sum if term.value is None else term.value)


@dataclass
class Likelihood:
    """Sums over what was predicted: the objective's terms, UTF-8 bytes, rows; and the examples that these were made of."""

    terms: TermSums = field(default_factory=TermSums)
    size: int = 0
    rows: int = 0
    examples: int = 0

    def found(self, wanted: tuple[Metric, ...]) -> dict[str, metrics.MetricValue]:
        """The means of all terms, and what follows from the one named `loss`: the likelihood of the tokens.

        An objective without such a term has the weighted sum of its terms as its loss, and no perplexity.
        """
        means = self.terms.means
        total = sum(self.terms.weights[name] * mean for name, mean in means.items())
        found = {name: metrics.MetricValue(mean, "") for name, mean in {"loss": total, **means}.items()}
        nll, count = self.terms.sums.get("loss", (0.0, 0))
        if "perplexity" in wanted and count:
            found["perplexity"] = metrics.MetricValue(metrics.perplexity(nll, int(count)), "")
        if "bits-per-byte" in wanted and count and self.size:
            found["bits_per_byte"] = metrics.MetricValue(metrics.bits_per_byte(nll, self.size), "")
        return found
