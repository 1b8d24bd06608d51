"""`qkv cost --sweep` writes a plot or a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_a_sweep_is_written_as_a_plot_or_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for ending, beginning in (("svg", "<svg"), ("html", "<!doctype html>")):
        out = tmp_path / f"plot.{ending}"
        assert main(["cost", "gpt2", "--sweep", "n_layers=1..4", "--out", str(out)]) == 0
        text = out.read_text()
        assert text.startswith(beginning) and "parameters" in text and "<script" not in text
    capsys.readouterr()
    for key in ("n_layers", "model.n_layers"):  # as recipes write it, too
        assert main(["cost", "gpt2", "--sweep", f"{key}=1,3", "--json"]) == 0
        assert [point[key] for point in json.loads(capsys.readouterr().out)] == [1, 3]
    assert main(["cost", "gpt2", "--sweep=tokens=128..1k", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)
    assert [point["tokens"] for point in points] == [128, 256, 512, 1000]
    assert points[0]["cache"] * 8 == points[2]["cache"] * 2
