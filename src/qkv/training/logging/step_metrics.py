"""Average the metrics of the steps since the last log line, with few device synchronizations."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .metrics_file import from_json, to_json


@dataclass(frozen=True)
class StepRecord:
    """One optimizer step over `count` items and `tokens` real tokens. `loss` is what was minimized, and `values` is what
    each term reports, per item.

    `position` is where the stream stood before the step: opened there, it gives the step's batches again.
    """

    step: int
    count: int
    position: dict[str, Any] | None
    loss: float = float("nan")
    grad_norm: float = float("nan")
    bad: bool = False
    values: dict[str, float] | None = None
    tokens: int = 0


class StepMetrics:
    """Holds the steps' numbers on the device until `settle`, then on the host until `line` sums them up.

    The sums survive in checkpoints, so a resumed run logs what an uninterrupted one would. The times do not: the
    throughput after a resume counts only what this process did.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[StepRecord, list[str], Tensor]] = []
        self._counted: list[Tensor] = []
        self._window: list[StepRecord] = []
        self._tokens = 0
        self._seconds = 0.0

    def add(
        self,
        step: StepRecord,
        loss: Tensor,
        grad_norm: Tensor,
        bad: Tensor,
        values: dict[str, Tensor],
        counted: Tensor | None = None,
    ) -> None:
        """Remember a step's numbers without asking the device for them. counted: the items and tokens of the step, if the
        host does not know them."""
        numbers = torch.stack([t.float() for t in (loss, grad_norm, bad, *values.values())])
        self._pending.append((step, list(values), numbers))
        if counted is not None:
            self._counted.append(counted)

    def time(self, seconds: float) -> None:
        """Add the time of a step, whose tokens `synchronize` adds."""
        self._seconds += seconds

    def synchronize(self) -> list[StepRecord]:
        """Read all numbers from the device at once. Returns the steps since the last time. Steps without an item are left
        out of the means."""
        if not self._pending:
            return []
        counted = iter(torch.stack(self._counted).tolist() if self._counted else ())
        numbers = iter(torch.cat([numbers for *_, numbers in self._pending]).tolist())
        settled = []
        for step, names, _ in self._pending:
            loss, grad_norm, bad = next(numbers), next(numbers), next(numbers)
            values = {name: next(numbers) for name in names}
            count, tokens = next(counted, (step.count, step.tokens))
            known = replace(step, count=round(count), tokens=round(tokens))
            settled.append(replace(known, loss=loss, grad_norm=grad_norm, bad=bad > 0, values=values))
        self._pending.clear()
        self._counted.clear()
        self._window += [step for step in settled if step.count]
        self._tokens += sum(step.tokens for step in settled)
        return settled

    @property
    def empty(self) -> bool:
        return not self._pending and not self._window

    def line(self) -> dict[str, Any]:
        """The means since the last line, each step weighed by what it counted; a NaN in any step shows."""
        window, self._window = self._window, []
        total = sum(step.count for step in window)

        def mean(values: list[float]) -> float | None:
            return sum(v * s.count for v, s in zip(values, window, strict=True)) / total if total else None

        names = list(window[0].values or {}) if window else []
        terms = {name: mean([(s.values or {}).get(name, 0.0) for s in window]) for name in names}
        rate = self._tokens / self._seconds if self._seconds else None
        self._tokens, self._seconds = 0, 0.0
        return {
            "loss": mean([s.loss for s in window]),
            "nll": terms.get("loss"),
            **({"terms": terms} if len(terms) > 1 else {}),
            "grad_norm": sum(s.grad_norm for s in window) / len(window) if window else None,
            "tokens_per_s": rate,
        }

    def state(self) -> list[dict[str, Any]]:
        return [{**to_json(asdict(step)), "position": None} for step in self._window]

    def load(self, state: list[dict[str, Any]]) -> None:
        self._window = [StepRecord(**from_json(step)) for step in state]
