"""`qkv cost traffic`."""

from __future__ import annotations

import json

import pytest

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_traffic_has_a_row_for_each_length_and_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "traffic", "--length", "1024,4096", "--hardware", "a100", "--hardware", "h100", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["tokens"], row["hardware"]) for row in rows] == [
        (n, d) for d in ("a100", "h100") for n in (1024, 4096)
    ]
    assert rows[0]["bytes"]["materialized"] == 2 * 16 * (4 * 1024 * 64 + 4 * 1024**2) and rows[0]["measured"] is None
    assert main(["cost", "traffic", "--length", "64", "--heads", "1", "--measure"]) == 0
    printed = capsys.readouterr().out
    assert "Predicted, of 1 heads of width 64 in bf16" in printed and "Measured here in fp32, 64 tokens:" in printed
