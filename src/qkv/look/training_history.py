"""Training history of a run: lines of `metrics.jsonl` as tables, whose numbers are series over steps."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Point = tuple[float, float]
Table = Literal["train", "eval", "final", "event"]


@dataclass(frozen=True)
class History:
    """Lines by their `type`, in the order of the file."""

    tables: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[Any]) -> History:
        """Group parsed lines; those without a type or a step are skipped."""
        tables: dict[str, list[dict[str, Any]]] = {}
        for line in lines:
            if isinstance(line, Mapping) and isinstance(line.get("type"), str) and _is_number(line.get("step")):
                tables.setdefault(line["type"], []).append(dict(line))
        return cls(tables)

    def series(self, table: Table, key: str) -> list[Point]:
        """Return (step, value) of each line whose value is a finite number."""
        lines = self.tables.get(table, ())
        return [(float(line["step"]), float(line[key])) for line in lines if _is_number(line.get(key))]

    def last(self, table: Table, key: str) -> float | None:
        points = self.series(table, key)
        return points[-1][1] if points else None

    def median(self, table: Table, key: str) -> float | None:
        values = [value for _, value in self.series(table, key)]
        return statistics.median(values) if values else None

    def keys(self, table: Table) -> list[str]:
        """Return the names of a table's numbers, in order of first occurrence."""
        lines = self.tables.get(table, ())
        return list(dict.fromkeys(k for line in lines for k, v in line.items() if _is_number(v) and k != "step"))

    def count(self, event: str) -> int:
        """Count events of one name: "bad step", "resumed" …"""
        return sum(line.get("event") == event for line in self.tables.get("event", ()))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
