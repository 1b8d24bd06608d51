"""`qkv reproduce`: the list, a plan, and mistakes in one sentence."""

from __future__ import annotations

import json

import pytest

from qkv.cli import main
from qkv.lab.reproduce.entry import names


def test_the_list_has_every_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    printed = capsys.readouterr().out
    assert all(name[:8] in printed for name in names()) and "91.4 %" in printed
    assert main(["reproduce", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in listed] == list(names())


def test_a_plan_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "chinchilla", "--plan"]) == 0
    printed = capsys.readouterr().out
    assert "qkv scaling fit svg_extracted_data.csv" in printed and "1.817" in printed and "- The same points" in printed


def test_mistakes_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "chinchila"]) == 2
    assert "did you mean 'chinchilla'" in capsys.readouterr().err
    assert main(["reproduce", "chinchilla"]) == 2
    error = capsys.readouterr().err
    assert "give the folder with --data DIR; download svg_extracted_data.csv from https://" in error
    assert error.count("\n") == 1
