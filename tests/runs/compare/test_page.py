"""The page of a comparison draws every measure."""

from __future__ import annotations

from pathlib import Path

from small_comparison import BOTTLENECK

from qkv.runs.compare.comparison import Comparison
from qkv.runs.compare.measures import Measurement
from qkv.runs.compare.page import write_page
from qkv.runs.inference.run import Run


def test_the_page_draws_every_measure(run: Run, tmp_path: Path) -> None:
    beside = "measure.beside=[{kind: sequential-steps, lengths: [4, 8]}, {kind: reach, length: 5}]"
    comparison = Comparison.load("bottleneck", [*BOTTLENECK, beside, "measure.examples=8"])
    assert comparison is not None
    found = [Measurement(measure) for measure in comparison.measure.all]
    for one in found:
        one.add("bahdanau", run)
    page = write_page(comparison, found, {}, tmp_path).read_text()
    assert all(one.measure.title in page for one in found) and "two source tokens is up to n steps long" in page
