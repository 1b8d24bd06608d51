"""`Measure`, the base of measures in a comparison: a curve for each variant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import Field, field_validator

from ...core.spec import Spec, nearest
from ...io.directories.layout import METRICS
from ...look.training_history import History
from ...training.logging.metrics_file import read_metrics
from ..evaluate.evaluate import Evaluator
from ..inference.run import Run

Curve = list[tuple[float, float]]


class Measure(Spec, role="measure"):
    """Measures a curve of a trained run. `x` and `y` name its axes; x is drawn on a logarithmic axis if `doubling`.

    beside: more measures of the same runs, each with its own chart.
    """

    title: ClassVar[str]
    x: ClassVar[str]
    doubling: ClassVar[bool] = False

    beside: tuple[Measure, ...] = ()

    @property
    def y(self) -> str:
        raise NotImplementedError

    @property
    def all(self) -> tuple[Measure, ...]:
        """This measure and the measures in `beside`."""
        return self, *self.beside

    def __call__(self, run: Run) -> Curve:
        """Points in ascending x. The curve ends where the model can't be measured any further."""
        raise NotImplementedError

    def remark(self, run: Run, curve: Curve) -> str:
        """A remark on one run, without a full stop; empty by default."""
        return ""

    def summary(self, curves: dict[str, Curve]) -> list[str]:
        """Sentences that summarize the curves."""
        return []


@dataclass
class Measurement:
    """The results of a measure: a curve, and perhaps a remark, for each variant measured so far."""

    measure: Measure
    curves: dict[str, Curve] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, run: Run) -> None:
        self.curves[name] = curve = self.measure(run)
        if curve and (remark := self.measure.remark(run, curve)):
            self.remarks[name] = remark

    def sentences(self) -> list[str]:
        return [*self.measure.summary(self.curves), *(f"{name}: {remark}." for name, remark in self.remarks.items())]


for _home, _kinds in {
    "by_length": ("by-length", "alignment"),
    "complexity": ("speed", "sequential-steps", "reach"),
}.items():
    for _kind in _kinds:
        Measure.kinds.later(_kind, f"{__package__}.{_home}")


class Lengths(Measure, kind="lengths"):
    """Perplexity on rows of `factors` times the context of training (Press et al. 2022, §2.2 and figure 1).

    The same `tokens` tokens of the test split are read at each length, in rows that don't overlap.
    """

    title = "Perplexity beyond the trained length"
    x = "tokens of context"
    doubling = True

    factors: tuple[int, ...] = (1, 2, 4, 8, 16)
    tokens: int = Field(default=65_536, gt=0)

    @property
    def y(self) -> str:
        return "perplexity"

    @field_validator("factors")
    @classmethod
    def _ascending(cls, factors: tuple[int, ...]) -> tuple[int, ...]:
        if not factors or factors[0] < 1 or list(factors) != sorted(set(factors)):
            raise ValueError(f"factors are different positive integers in ascending order, not {list(factors)}")
        return factors

    def __call__(self, run: Run) -> Curve:
        assert run.recipe is not None
        recipe, trained = run.recipe, run.recipe.batching.context
        longest = trained * max(self.factors)
        if self.tokens < longest:
            raise ValueError(f"measure.tokens={self.tokens} is less than the longest row of {longest} tokens; raise it")
        curve = []
        for length in (trained * factor for factor in self.factors):
            if run.model.max_positions is not None and length > run.model.max_positions:
                break
            batching = recipe.batching.replace(context=length, tokens=longest)
            evaluation = recipe.evaluation.replace(metrics=("perplexity",), samples=0)
            evaluator = Evaluator(
                recipe.data,
                run.words,
                batching,
                evaluation,
                run.generation,
                recipe.objective,
                recipe.seed,
            )
            result = evaluator(run.model, "test", self.tokens // length)
            curve.append((float(length), result.metrics["perplexity"]))
        return curve

    def summary(self, curves: dict[str, Curve]) -> list[str]:
        sentences = []
        for name, curve in curves.items():
            (start, first), *more = curve
            if not more:
                sentences.append(f"{name}: {first:.2f} at {start:.0f} tokens, its longest context.")
                continue
            beyond = ", ".join(f"{y / first:.2f} × at {x / start:.0f} L" for x, y in more)
            sentences.append(f"{name}: {first:.2f} at L = {start:.0f} tokens; {beyond}.")
        return sentences


class Progress(Measure, kind="progress"):
    """A metric of the validation split (`loss`, `exact_match`, `bleu` …) against the seconds of training."""

    title = "Progress"
    x = "seconds of training"

    metric: str = "loss"

    @property
    def y(self) -> str:
        return self.metric

    def __call__(self, run: Run) -> Curve:
        assert run.path is not None
        history = History.of(read_metrics(run.path / METRICS))
        seconds = dict(history.series("eval", "elapsed"))
        measured = history.series("eval", self.metric)
        if not measured:
            raise ValueError(
                f"measure.metric={self.metric} was never measured; {nearest(self.metric, history.keys('eval'))}, and "
                "training.eval_every says how often"
            )
        return [(seconds[step], value) for step, value in measured]

    def summary(self, curves: dict[str, Curve]) -> list[str]:
        return [f"{name}: {curve[-1][1]:.4g} after {curve[-1][0]:,.0f} seconds." for name, curve in curves.items()]
