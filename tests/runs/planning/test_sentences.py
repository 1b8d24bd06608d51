"""Layouts in sentences: units, and what is said of differences."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qkv.runs.planning.sentences import against, seconds, size_of, step_of, why


@pytest.mark.parametrize(
    ("size", "text"),
    [(1e9, "1.0 GB"), (12_345e9, "12,345.0 GB"), (999.6e6, "1,000 MB"), (1e6, "1 MB"), (999e3, "999 kB"), (0, "0 kB")],
)
def test_bytes_have_the_unit_below_them(size: float, text: str) -> None:
    assert size_of(size) == text


@pytest.mark.parametrize(("time", "text"), [(61.25, "61.2 s"), (1, "1 s"), (0.5, "500 ms"), (2e-5, "20 µs"), (0, "0")])
def test_times_have_three_digits(time: float, text: str) -> None:
    assert seconds(time) == text


def plan(layout: str, **parts: float) -> Any:
    whole = sum(parts.values())
    step = SimpleNamespace(seconds=whole, parts=parts, bound=max(parts, key=lambda name: parts[name]))
    return SimpleNamespace(layout=layout, step=step)


def test_what_takes_most_of_a_step() -> None:
    assert step_of(plan("x", products=0.3, attention=0.1)) == "400 ms a step, bound by products (75% of it)"


def test_a_slower_layout_names_the_part_that_grew_most() -> None:
    best = plan("data 8", products=1.0, attention=0.5)
    assert against(plan("y", products=1.1, attention=0.5, bubble=0.65), best) == "+50%, most of it bubble"
    assert against(plan("y", products=1.001, attention=0.5), best) == "+0.1%, no difference that could be measured"


def test_why_a_layout_is_first() -> None:
    fast, slow = plan("tensor 8", products=1.0), plan("data 8", products=1.01)
    assert why([fast]) == "the only one that fits"
    assert why([fast, slow]) == "the fastest of 2 layouts that fit into memory"
    assert why([slow, fast]).startswith("the simplest of 2 layouts that fit into memory within ")
    assert why([slow, fast]).endswith(" of the fastest, which is tensor 8")
