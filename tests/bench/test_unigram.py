"""`python -m bench unigram`: what it compares, with a stand-in for SentencePiece."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.unigram import OURS, THEIRS, compared, fit, table, texts

from bench import machine, unigram

LINES = ["the cats ate the mats", "a mate sat near there"] * 60


@pytest.mark.slow
def test_both_train_on_the_same_lines_and_are_measured_on_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unigram, "SIZE", 40)
    stand_in = "import json, sys; print(json.dumps([2.0, [[c, -3.0] for c in '▁thecasmr'] + [['▁the', -2.0]]]))"
    monkeypatch.setattr(unigram, "_THEIRS", stand_in)
    row = compared(LINES, sys.executable, 2)
    assert row["characters"] == sum(map(len, LINES)) * 19 // 20 and row["seconds"][THEIRS] == [2.0, 2.0]
    assert row[OURS]["pieces"] <= 40 and 0 < row[OURS]["nats"] < row[THEIRS]["nats"]
    result = {**machine.stamp(), "load_before": 0.0, "sentencepiece": "0.2.3", "rows": [{"text": "lines", **row}]}
    assert "| lines | 0.0 |" in table(result) and "; 2.00" not in table(result)


def test_the_fit_matches_the_best_segmentation() -> None:
    scores = [["▁", -1.0], ["a", -1.0], ["b", -1.0], ["▁ab", -2.0]]
    assert fit(scores, ["ab ab", "a"]) == {"pieces": 4, "tokens": 4, "nats": round((2 + 2 + 2) / 8, 4)}


def test_a_failing_peer_ends_it(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="ended with status"):
        unigram._output([sys.executable, "-c", "raise SystemExit(3)"])


def test_the_quick_text_is_python_code() -> None:
    ((name, lines),) = texts(quick=True)
    assert "code" in name and any(line.startswith("import ") for line in lines)
