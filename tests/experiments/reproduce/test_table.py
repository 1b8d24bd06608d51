"""The tables of published results: what is measured, what is not, and the page of docs/results.md."""

from __future__ import annotations

from pathlib import Path

from qkv.experiments.reproduce.entry import Entry, Figure, Kept
from qkv.experiments.reproduce.table import comparison, page, rows

RESULTS = Path(__file__).parents[3] / "docs" / "results.md"
FIGURES = (
    Figure(name="loss", published=1.5, goal="at most", file="a.json", key="loss"),
    Figure(name="curve", published="falls", file="a.json", key="ratio"),
)
ENTRY = Entry(
    name="toy",
    title="A toy",
    source="Nobody",
    link="https://example.org",
    steps=("train lm",),
    figures=FIGURES,
    minutes=1.0,
    differences=("It is smaller.",),
)


def measured(loss: float, date: str) -> Kept:
    where = {"machine": "a core", "versions": "torch", "origin": "qkv reproduce toy"}
    return Kept(figures={"loss": loss}, date=date, minutes=2.0, **where)


def test_rows() -> None:
    assert rows(ENTRY, None)[0] == ["loss", "1.50", "not measured", "at most 1.50"]
    assert rows(ENTRY, measured(1.4, "2026-01-01")) == [
        ["loss", "1.50", "1.40", "met (at most 1.50)"],
        ["curve", "falls", "not measured", ""],
    ]


def test_a_comparison_shows_what_was_measured_before() -> None:
    text = comparison(ENTRY, measured(1.6, "2026-02-02"), measured(1.4, "2026-01-01"))
    assert "not met (at most 1.50)" in text and "1.40 (2026-01-01)" in text and "in 2.0 minutes on a core" in text


def test_the_docs_have_the_table() -> None:
    assert page() in RESULTS.read_text(encoding="utf-8"), "write it again: python -m bench render"
