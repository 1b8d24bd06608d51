"""The table of an evaluation, and its samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qkv.cli.results import show, show_saved

RESULT: dict[str, Any] = {
    "split": "test",
    "examples": 7,
    "available": 20,
    "seconds": 1.25,
    "metrics": {"exact_match": 0.5, "loss": 2.34567, "bleu": 34.541, "perplexity": None},
    "signatures": {"bleu": "nrefs:1|case:mixed"},
    "counts": {"bleu": 6},
    "samples": [
        {"source": "a b", "output": "b a", "target": "b a"},
        {"source": "c [d]", "output": "d c", "target": "[d] c"},
    ],
    "notes": ["a note [with brackets]"],
}


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def test_metrics_have_their_form_count_and_signature(capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULT)
    printed = capsys.readouterr().out
    rows = {" ".join(line.split()) for line in printed.splitlines()}
    assert "test, 7 of 20 examples, 1.2 s" in rows
    assert {"exact match 50.00%", "loss 2.346", "perplexity not finite"} <= rows
    assert "bleu 34.54 over 6 examples; nrefs:1|case:mixed" in rows
    assert "a note [with brackets]" in rows


def test_samples_stand_beside_their_references(capsys: pytest.CaptureFixture[str]) -> None:
    show(RESULT)
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert {"source output reference", "a b b a the same", "c [d] d c [d] c"} <= set(rows)
    show({**RESULT, "samples": [{"source": "once", "output": "upon a time"}]})
    assert "prompt output" in " ".join(capsys.readouterr().out.split())


def test_a_saved_evaluation_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "evaluation.json").write_text(json.dumps(RESULT))
    show_saved(tmp_path / "evaluation.json")
    assert "34.54" in capsys.readouterr().out
