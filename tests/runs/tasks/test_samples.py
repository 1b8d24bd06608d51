"""Samples for a report: evenly spaced, or a uniform random sample of a stream."""

from __future__ import annotations

from collections import Counter

from qkv.runs.tasks.samples import Reservoir


def test_a_few_of_many_are_drawn_evenly() -> None:
    counts = Counter[int]()
    kept: Reservoir[int] = Reservoir(50)
    for i in range(1000):
        kept.add(i)
    counts.update(i // 250 for i in kept.take(50))
    assert min(counts.values()) > 5 and kept.take(50) == sorted(kept.take(50)) and len(kept.take(4)) == 4
    few: Reservoir[int] = Reservoir(50)
    few.add(3)
    assert few.take(9) == [3]
