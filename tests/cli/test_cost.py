"""`qkv cost`: what it prints."""

from __future__ import annotations

import json

import pytest
from run_tiny import TINY

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "reverse", *TINY, "--no-data"]) == 0
    printed = capsys.readouterr().out
    for said in ("decoder cross-attention", "total", "256 tokens (2 × (64 + 64)), in fp32", "MiB at most", "estimate"):
        assert said in printed
    assert main(["cost", "gpt2", "n_layers=1", "--rows", "1", "--length", "16", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["shape"] == {"rows": 1, "length": 16, "source": 0}
    assert told["parameters"] == sum(part["parameters"] for part in told["parts"])
    assert told["memory"]["peak"] > told["memory"]["weights"] >= 4 * told["parameters"]
