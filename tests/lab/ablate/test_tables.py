"""Tables of an ablation: differences with their intervals, as Markdown and CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

from qkv.lab.ablate.forecast import CostForecast
from qkv.lab.ablate.page import _difference
from qkv.lab.ablate.summary import AblationSummary, Spread, VariantRow
from qkv.lab.ablate.tables import as_csv, markdown, paired


def test_a_loss_has_its_interval_in_the_tables_too() -> None:
    known: dict[str, Any] = {"metrics": {"loss": Spread.of({0: 1.2, 1: 1.3})}, "finished": (0, 1)}
    forecast = CostForecast(10, 1.0, None, None, None)
    row = VariantRow("v", "variant", (), forecast, differences={"loss": 0.1}, intervals={"loss": (0.05, 0.15)}, **known)
    summary = AblationSummary("s", "steps", "b", (0, 1), ("loss",), (row,))
    assert "variant" in paired(summary)[0] and "95 % interval +0.05 to +0.15" in paired(summary)[0]
    assert _difference(row, "loss") == "+0.1 (+0.05 to +0.15)"
    head, line = as_csv(summary).splitlines()
    assert head.endswith("loss_difference,loss_difference_low,loss_difference_high")
    assert line.endswith("0.1,0.05,0.15")


def test_the_terminal_tells_the_difference_of_the_loss_beside_the_first_metric() -> None:
    """The first metric of a short training is often 0 in all runs; its loss tells the variants apart."""
    metrics = ("exact_match", "loss", "perplexity")
    differences = {"exact_match": 0.0, "loss": 0.1, "perplexity": 2.0}
    intervals = {"exact_match": (0.0, 0.0), "loss": (0.05, 0.15), "perplexity": (1.0, 3.0)}
    forecast = CostForecast(10, 1.0, None, None, None)
    row = VariantRow("v", "variant", (), forecast, {}, differences, intervals)
    first, second = paired(AblationSummary("s", "steps", "b", (0, 1), metrics, (row,)))
    assert first.startswith("variant: Exact match +0.00")
    assert second == "variant: Loss +0.1 from the baseline, 95 % interval +0.05 to +0.15"


def test_a_label_with_line_ends_stays_in_its_row() -> None:
    row = VariantRow("v", "a\rb\nc", ("x='a\rb'",), CostForecast(10, 1.0, None, None, None))
    summary = AblationSummary("s", "steps", "b", (0,), (), (row,))
    (read,) = csv.DictReader(io.StringIO(as_csv(summary), newline=""))
    assert read["variant"] == "a\rb\nc" and read["settings"] == "x='a\rb'" and read["parameters"] == "10"
    assert markdown(summary).splitlines()[2].startswith("| a b c |")
