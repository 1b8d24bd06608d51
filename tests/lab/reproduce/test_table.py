"""The tables of published results: what is measured, what is not, and the page of docs/results.md."""

from __future__ import annotations

from pathlib import Path

from qkv.lab.reproduce.entry import KeptResult, PublishedFigure, PublishedResult
from qkv.lab.reproduce.table import comparison, order, page, rows

RESULTS = Path(__file__).parents[3] / "docs" / "results.md"
FIGURES = (
    PublishedFigure(name="loss", published=1.5, goal="at most", file="a.json", key="loss"),
    PublishedFigure(name="curve", published="falls", file="a.json", key="ratio"),
)
ENTRY = PublishedResult(
    name="toy",
    title="A toy",
    source="Nobody",
    link="https://example.org",
    steps=("train lm",),
    figures=FIGURES,
    minutes=1.0,
    differences=("It is smaller.",),
)


def measured(loss: float, date: str) -> KeptResult:
    where = {"machine": "a core", "versions": "torch", "origin": "qkv reproduce toy"}
    return KeptResult(figures={"loss": loss}, date=date, minutes=2.0, **where)


def test_rows_show_goals_beside_measured_figures() -> None:
    assert rows(ENTRY, None)[0] == ["loss", "1.50", "not measured", "at most 1.50"]
    assert rows(ENTRY, measured(1.4, "2026-01-01")) == [
        ["loss", "1.50", "1.40", "met (at most 1.50)"],
        ["curve", "falls", "not measured", ""],
    ]


def test_a_comparison_shows_what_was_measured_before() -> None:
    text = comparison(ENTRY, measured(1.6, "2026-02-02"), measured(1.4, "2026-01-01"))
    assert "not met (at most 1.50)" in text and "1.40 (2026-01-01)" in text and "in 2.0 minutes on a core" in text


def test_the_order_of_figures_of_one_kind() -> None:
    one = PublishedFigure(name="a", published=1.1, goal="at least", target=1.0, file="a.json", key="a")
    entry = ENTRY.replace(
        {"ranked": True, "figures": (one, one.replace(name="b", published=1.2), one.replace(name="c", published=1.3))}
    )
    result = measured(0, "2026-01-01").replace(figures={"a": 0.9, "b": 1.4, "c": 1.2})
    assert order(entry, result) == (
        "2 of 3 goals are met; Spearman's rank correlation of the published order and ours is 0.50."
    )
    assert order(entry, result) in comparison(entry, result, None)
    assert not order(ENTRY, result)


def test_the_docs_have_the_table() -> None:
    assert page() in RESULTS.read_text(encoding="utf-8"), "write it again: python -m bench render"
