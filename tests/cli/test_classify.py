"""`qkv classify`: a line or JSON for each text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_untrained import bert

import qkv
from qkv.cli import main

TEXTS = ["not dull", "but brave"]


def test_the_command_names_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(bert(qkv.SequenceClassifier(labels=3)).save(tmp_path / "run", "qkv"))
    expected = qkv.load(folder, "cpu").classify(TEXTS)
    assert main(["classify", folder, *TEXTS]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [text for _, text in lines] == TEXTS
    assert [said.split()[0] for said, _ in lines] == [one.label for one in expected]
    assert main(["classify", folder, "--json", TEXTS[0] + "\tslow"]) == 0
    (pair,) = qkv.load(folder, "cpu").classify([TEXTS[0]], ["slow"])
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"text", "label", "probabilities"} and found["label"] == pair.label
    assert found["probabilities"] == pytest.approx(pair.probabilities)
    assert main(["classify", folder, "a\tb", "c"]) != 0
    assert "give texts, or TEXT<tab>TEXT" in capsys.readouterr().err
