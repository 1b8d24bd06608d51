"""`python -m bench quantization`: what it measures of a run, and its table."""

from pathlib import Path

import pytest
from bench.quantization import Setting, measured, table

import qkv
from bench import quantization


def test_a_run_is_measured_with_each_setting(trained_lm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(quantization, "of_test_split", lambda run: seen.append(run) or quality(30 + len(seen)))
    found = measured(qkv.load(trained_lm, "cpu"), (Setting("int8", None, "rtn"), Setting("int4", 8, "gptq")), 4)
    assert [row["perplexity"] for row in found["rows"]] == [32, 33] and found["perplexity"] == 31
    sizes = [found["on_disk"], *(row["on_disk"] for row in found["rows"])]
    assert max(sizes[1:]) < sizes[0]
    assert all(len(row["worst"]) == 2 for row in found["rows"])
    text = table(found)
    assert "| int4 | 8 |  | gptq | 33.00 | +6.45 % |" in text
    assert "int8 ≤ +0.5 %: **not reached**" in text and "(at most +3.23 %)" in text


def quality(perplexity: float) -> quantization.Quality:
    return quantization.Quality({"perplexity": float(perplexity)}, 7, "the test split")
