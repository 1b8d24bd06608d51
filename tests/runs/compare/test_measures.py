"""Measures of perplexity by length and of progress in training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_comparison import load_comparison

from qkv.runs.compare.compare import compare
from qkv.runs.compare.measures import Lengths


def test_progress_is_what_was_measured_in_training(recipe: Path, tmp_path: Path) -> None:
    settings = ["measure={kind: progress, metric: loss}", "training.eval_every=1", "compare.learned=null"]
    done = compare(load_comparison(recipe, *settings), tmp_path / "out", device="cpu")
    lines = [json.loads(line) for line in (tmp_path / "out" / "alibi" / "metrics.jsonl").read_text().splitlines()]
    evaluations = [(line["elapsed"], line["loss"]) for line in lines if line["type"] == "eval"]
    assert done.curves["alibi"] == evaluations and len(evaluations) >= 3
    with pytest.raises(ValueError, match="never measured"):
        settings[0] = "measure={kind: progress, metric: bleu}"
        compare(load_comparison(recipe, *settings), tmp_path / "other", device="cpu")


def test_the_summary_tells_the_value_beyond_the_trained_length() -> None:
    told = Lengths().summary({"alibi": [(8.0, 10.0), (16.0, 9.5)], "learned": [(8.0, 11.0)]})
    assert told == [
        "alibi: 10.00 at L = 8 tokens; 0.95 × at 2 L.",
        "learned: 11.00 at 8 tokens, its longest context.",
    ]
