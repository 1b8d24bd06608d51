"""Checks of metrics: nothing measured, NaN, order of batches, parts of a batch against the whole, samples."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence

import torch

from ..core.batch import Batch
from ..core.metrics.base import MeasuredModel, Metric, MetricValue
from .batches import examples_in, part_of
from .random_draws import RandomDraws
from .report import NotChecked

TOLERANCE = 1e-3  # relative; outputs of parts of a batch differ by rounding, which correlations magnify
SAMPLES = 3


def metric_checks(
    metric: Metric, model: MeasuredModel | None, batches: Sequence[Batch]
) -> dict[str, Callable[[], None]]:
    checks = MetricChecks(metric, model, batches)
    return {
        "nothing measured": checks.nothing,
        "values": checks.values,
        "any order": checks.any_order,
        "parts = whole": checks.parts,
        "NaN stays NaN": checks.nan,
        "samples": checks.samples,
    }


class MetricChecks:
    """The checks of one metric, which is copied before it is used, on the batches of a model."""

    def __init__(self, metric: Metric, model: MeasuredModel | None, batches: Sequence[Batch]) -> None:
        self.metric, self.model, self.batches = metric, model, batches

    @torch.no_grad()
    def _measured(self, batches: Iterable[Batch], model: MeasuredModel | None = None) -> Metric:
        if self.model is None or not self.batches:
            raise NotChecked("there is nothing to measure; give `model` and `batches`")
        metric = copy.deepcopy(self.metric)
        for batch in batches:
            metric.evaluate(self.model if model is None else model, batch)
        return metric

    def nothing(self) -> None:
        """Without a batch there is no number, or one sentence that says why."""
        try:
            values = copy.deepcopy(self.metric).compute()
        except ValueError:
            return
        finite = [name for name, value in values.items() if math.isfinite(value.value)]
        assert not finite, (
            f"{finite[0]!r} is {values[finite[0]].value} though nothing was measured; return NaN or nothing"
        )

    def values(self) -> None:
        """Metrics have names and numbers."""
        values = self._measured(self.batches).results()
        for name, value in values.items():
            right = isinstance(name, str) and isinstance(value, MetricValue) and isinstance(value.value, float | int)
            assert right, f"{name!r} is {value!r}; `compute` returns a MetricValue, a number, for each name"

    def any_order(self) -> None:
        """The order of batches does not matter."""
        forward = self._measured(self.batches).results()
        if len(self.batches) < 2:
            raise NotChecked("there is only one batch; give several `batches`")
        backward = self._measured(reversed(self.batches)).results()
        _same(backward, forward, "differs when batches come in another order")

    def parts(self) -> None:
        """A batch measured in parts, whatever their order, gives what it gives at once."""
        if all(examples_in(batch) < 2 for batch in self.batches):
            raise NotChecked("no batch has several examples")
        draws = RandomDraws()
        with draws:
            whole = self._measured(self.batches).results()
        if draws.seen:
            raise NotChecked("random numbers are drawn in evaluation, other ones for parts of a batch")
        parts = self._measured(part for batch in self.batches for part in _singles(batch)).results()
        _same(parts, whole, "differs when each example is a separate batch")
        backward = self._measured(part for batch in self.batches for part in reversed(_singles(batch))).results()
        _same(backward, whole, "differs when examples come in another order")

    def nan(self) -> None:
        """If any output is NaN, every number is."""
        values = self._measured(self.batches).results()
        model = copy.deepcopy(self.model)
        parameters = list(getattr(model, "parameters", list)())
        if not parameters or not values:
            raise NotChecked("the model has no parameters to set to NaN" if values else "there is no number")
        with torch.no_grad():
            for parameter in parameters:
                parameter.fill_(math.nan)
        spoiled = self._measured(self.batches, model).results()
        finite = [name for name in values if name in spoiled and not math.isnan(spoiled[name].value)]
        assert not finite, f"{finite[0]!r} is {spoiled[finite[0]].value} though all outputs are NaN"

    def samples(self) -> None:
        """At most as many samples as asked for: dictionaries with texts, or pictures."""
        samples = self._measured(self.batches).samples(SAMPLES)
        assert len(samples) <= SAMPLES, f"`samples({SAMPLES})` gives {len(samples)} samples"
        for sample in samples:
            texts = [sample[name] for name in ("source", "output", "target") if name in sample]
            assert texts or "picture" in sample, "a sample has neither `source`, `output`, `target` nor `picture`"
            odd = [text for text in texts if not isinstance(text, str)]
            assert not odd, f"a sample has {odd[:1]!r} for a text"
        if not samples:
            raise NotChecked("there is no sample")


def _singles(batch: Batch) -> list[Batch]:
    return [part_of(batch, i, i + 1) for i in range(examples_in(batch))]


def _same(values: dict[str, MetricValue], expected: dict[str, MetricValue], message: str) -> None:
    assert values.keys() == expected.keys(), f"{sorted(values.keys() ^ expected.keys())} {message}"
    for name in expected:
        value, other = values[name].value, expected[name].value
        both_nan = math.isnan(value) and math.isnan(other)
        right = both_nan or math.isclose(value, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        assert right, f"{name!r} {message}: {value:.6g} and {other:.6g}"
