"""Summarize the runs of an ablation: mean and standard deviation over seeds, and the difference from the baseline."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ...core.metrics.bootstrap import METRICS, Difference, paired_bootstrap
from ...core.metrics.display import display_of
from ...core.optional_libraries import need
from ...runs.compare.measures import Curve
from .ablation import Ablation
from .forecast import CostForecast
from .single_run import RunResult


@dataclass(frozen=True)
class Spread:
    """A number of several runs: mean, sample standard deviation (None for one run), and the values by seed."""

    mean: float
    sd: float | None
    values: dict[int, float]

    @classmethod
    def of(cls, values: Mapping[int, float]) -> Spread:
        numbers = list(values.values())
        return cls(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None, dict(values))


@dataclass(frozen=True)
class VariantRow:
    """A variant.

    metrics:     of the test split, over the seeds that didn't diverge.
    differences: by metric, mean of the variant minus mean of the baseline, over the seeds that both have.
    intervals:   by metric, of differences of two seeds or more: (low, high) of 95 % by Student's t.
    bootstrap:   by corpus metric, how certain the difference is on other test examples.
    diverged:    seeds.
    seconds, speed: measured, of training and in tokens per second.
    validation:  by metric, points (step, mean over seeds) during training.
    curve:       of the ablation's measure, mean over seeds.
    """

    variant: str
    label: str
    settings: tuple[str, ...]
    forecast: CostForecast
    metrics: dict[str, Spread] = field(default_factory=dict)
    differences: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    bootstrap: dict[str, Difference] = field(default_factory=dict)
    finished: tuple[int, ...] = ()
    diverged: tuple[int, ...] = ()
    steps: Spread | None = None
    seconds: Spread | None = None
    speed: Spread | None = None
    validation: dict[str, Curve] = field(default_factory=dict)
    curve: Curve = field(default_factory=list)


@dataclass(frozen=True)
class AblationSummary:
    """`metrics` are the names of the columns: the recipe's `training.metric` first."""

    name: str
    budget: str
    baseline: str
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    rows: tuple[VariantRow, ...]

    def best(self, metric: str) -> str | None:
        """The variant with the best mean of a metric; None if no direction is better or nothing is measured."""
        higher = display_of(metric).higher_is_better
        means = {row.variant: row.metrics[metric].mean for row in self.rows if metric in row.metrics}
        if higher is None or not means:
            return None
        return (max if higher else min)(means, key=means.__getitem__)

    def same(self) -> list[tuple[str, str]]:
        """Pairs of variants, by label, whose every run gave the same numbers: what tells them apart has no effect."""
        first: dict[str, str] = {}
        pairs = []
        for row in self.rows:
            values = {metric: spread.values for metric, spread in sorted(row.metrics.items())}
            if not values or set(row.finished) != set(self.seeds):
                continue
            if (found := first.setdefault(repr(values), row.label)) != row.label:
                pairs.append((found, row.label))
        return pairs

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarize(
    ablation: Ablation, forecasts: Mapping[str, CostForecast], results: Mapping[tuple[str, int], RunResult]
) -> AblationSummary:
    """Summarize the runs that are done."""
    by_variant = {
        name: {seed: results[name, seed] for seed in ablation.seeds if (name, seed) in results}
        for name in ablation.variants
    }
    base = _finished(by_variant[ablation.baseline])
    rows = tuple(
        _row(ablation, name, forecasts[name], runs, base if name != ablation.baseline else {})
        for name, runs in by_variant.items()
    )
    main = str(ablation.variant(ablation.baseline).training.metric)
    names = dict.fromkeys(name for row in rows for name in row.metrics)
    metrics = tuple(sorted(names, key=lambda name: (name != main, display_of(name).part)))
    return AblationSummary(ablation.name, ablation.budget, ablation.baseline, ablation.seeds, metrics, rows)


def _finished(runs: Mapping[int, RunResult]) -> dict[int, RunResult]:
    return {seed: run for seed, run in runs.items() if run.status == "finished"}


def _row(
    ablation: Ablation, name: str, forecast: CostForecast, runs: Mapping[int, RunResult], base: Mapping[int, RunResult]
) -> VariantRow:
    finished = _finished(runs)
    names = dict.fromkeys(metric for run in finished.values() for metric in run.metrics)
    variant = ablation.variants[name]
    pairs = _pairs(finished, base, list(names))
    return VariantRow(
        name,
        variant.label,
        variant.settings,
        forecast,
        metrics={
            metric: Spread.of({seed: run.metrics[metric] for seed, run in finished.items() if metric in run.metrics})
            for metric in names
        },
        differences={metric: statistics.fmean(values) for metric, values in pairs.items()},
        intervals={metric: interval(values) for metric, values in pairs.items() if len(values) > 1},
        bootstrap=_bootstrap(finished, base, ablation, list(names)),
        finished=tuple(finished),
        diverged=tuple(seed for seed, run in runs.items() if run.status == "diverged"),
        steps=_spread({seed: float(run.steps) for seed, run in finished.items()}),
        seconds=_spread({seed: run.seconds for seed, run in finished.items()}),
        speed=_spread({seed: run.speed for seed, run in finished.items() if run.speed is not None}),
        validation=_mean_curves([run.validation for run in finished.values()]),
        curve=_mean_curve([run.curve for run in finished.values()]),
    )


def _spread(values: Mapping[int, float]) -> Spread | None:
    return Spread.of(values) if values else None


def _pairs(runs: Mapping[int, RunResult], base: Mapping[int, RunResult], metrics: list[str]) -> dict[str, list[float]]:
    """By metric, variant minus baseline with each seed that both have."""
    pairs = {}
    for metric in metrics:
        seeds = [s for s in runs if s in base and metric in runs[s].metrics and metric in base[s].metrics]
        if seeds:
            pairs[metric] = [runs[s].metrics[metric] - base[s].metrics[metric] for s in seeds]
    return pairs


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """The interval of 95 % of the mean of paired differences, by Student's t: mean ± t · s / √n."""
    need("an interval by Student's t", "scipy")
    from scipy.special import stdtrit

    n = len(differences)
    mean, half = statistics.fmean(differences), float(stdtrit(n - 1, 0.975)) * statistics.stdev(differences) / n**0.5
    return mean - half, mean + half


def _bootstrap(
    runs: Mapping[int, RunResult], base: Mapping[int, RunResult], ablation: Ablation, metrics: list[str]
) -> dict[str, Difference]:
    """The paired bootstrap of each corpus metric, if variant and baseline have outputs for the same references."""
    seeds = [seed for seed in runs if seed in base]
    if not seeds or not runs[seeds[0]].outputs:
        return {}
    references = base[seeds[0]].references
    if any(run.references != references for seed in seeds for run in (runs[seed], base[seed])):
        return {}
    outputs, others = [runs[seed].outputs for seed in seeds], [base[seed].outputs for seed in seeds]
    tokenize = ablation.variant(ablation.baseline).evaluation.bleu_tokenize
    return {
        metric: paired_bootstrap(metric, outputs, others, references, tokenize=tokenize)
        for metric in metrics
        if metric in METRICS
    }


def _mean_curves(curves: list[dict[str, Curve]]) -> dict[str, Curve]:
    names = dict.fromkeys(name for one in curves for name in one)
    return {name: _mean_curve([one[name] for one in curves if name in one]) for name in names}


def _mean_curve(curves: list[Curve]) -> Curve:
    """The mean of y at each x that all curves have."""
    if not curves:
        return []
    tables = [{float(x): float(y) for x, y in curve} for curve in curves]
    shared = [x for x in tables[0] if all(x in table for table in tables)]
    return [(x, statistics.fmean(table[x] for table in tables)) for x in shared]
