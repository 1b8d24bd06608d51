"""`python -m bench speculation`: what it measures of a run, and its table."""

from pathlib import Path

from bench.speculation import PLAIN, kinds, measured, spread, table

import qkv
from bench import machine


def test_a_run_is_measured_with_each_kind(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("a b\nb a c\nc\nb\n")
    texts = spread(tmp_path / "texts", 2)
    assert texts == ["a b", "c"]
    run = qkv.load(trained, "cpu")
    named = kinds(run, run)
    assert {"`lookup`", "`draft`, 3 tokens"} <= named.keys()
    found = measured(run, texts, named, 1)
    assert found["rows"][0]["what"] == PLAIN and all(row["same"] == 2 for row in found["rows"])
    perfect = next(row for row in found["rows"] if row["what"] == "`draft`, 3 tokens")
    assert perfect["accepted"] == perfect["proposed"] > 0
    for row, seconds in zip(found["rows"], (3.0, 1.5, *[6.0] * 9), strict=False):
        row["seconds"] = [seconds]
    about = {"parameters": {"model": 9}, "texts": "2 lines", "threads": 1, "load_before": 0.0}
    text = table({**machine.stamp(), **about, **found})
    assert "| `lookup` |" in text and "| 2.00 |" in text and "≥ 1.5 times as fast: reached (at most 2.00)" in text
