"""The page of an ablation: differences with their intervals, runs that diverged, and the best variant."""

from __future__ import annotations

from pathlib import Path

from qkv.core.metrics.bootstrap import Difference
from qkv.lab.ablate.ablation import Ablation
from qkv.lab.ablate.forecast import CostForecast
from qkv.lab.ablate.page import write_page
from qkv.lab.ablate.single_run import RunResult
from qkv.lab.ablate.summary import AblationSummary, Spread, VariantRow

FORECAST = CostForecast(10, 1.0, None, None, None)


def test_the_page_tells_differences_divergence_and_the_best(pairs: list[str], tmp_path: Path) -> None:
    ablation = Ablation.load("localise", pairs, parts=["norm"], seeds=2)
    first, second = ablation.variants
    base = VariantRow(first, "baseline", (), FORECAST, {"loss": Spread.of({0: 1.0, 1: 1.2})}, finished=(0, 1))
    other = VariantRow(
        second,
        "without norm",
        ("a=b",),
        FORECAST,
        {"loss": Spread.of({0: 1.5})},
        differences={"loss": 0.5},
        intervals={"loss": (0.25, 0.75)},
        bootstrap={"loss": Difference(0.5, 0.125, 0.875, 0.031)},
        finished=(0,),
        diverged=(1,),
    )
    results = {(second, 1): RunResult("diverged", message="the loss is NaN")}
    summary = AblationSummary("made", "steps", first, (0, 1), ("loss",), (base, other))
    page = write_page(ablation, summary, results, tmp_path).read_text()
    assert "Diverged, and left out of the means: without norm (1 run)." in page
    assert "+0.5 (+0.25 to +0.75) [+0.125, +0.875; p = 0.031]" in page
    assert "seed 1: the loss is NaN" in page and "best Loss" in page and "trained for the same number of steps" in page
