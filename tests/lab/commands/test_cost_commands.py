"""`qkv cost` with several names, --sweep, `fit` and `layers`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_models_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "gpt2", "bert-base"]) == 0
    printed = capsys.readouterr().out
    assert "gpt2" in printed and "110M" in printed
    assert main(["cost", "gpt2", "bert-base", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["model"], first["parameters"], second["cache"]) == ("gpt2", 124439808, None)


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


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["cost", "gpt2", "--sweep", "tokens=1k..1M"], "2,000 tokens are more than gpt2's context of 1,024"),
        (["cost", "gpt2", "--sweep", "tokens=1..2", "--out", "a.png"], "--out draws an .svg or .html file, not a.png"),
        (["cost", "fit", "gpt2", "--memory", "much"], "'much' is not a size of memory"),
        (["cost", "layers", "--width", "100", "--heads", "7"], "n_heads=7 does not divide d_model=100"),
        (["cost", "traffic", "--hardware", "m4"], "the fast memory of m4 is unknown; name another device"),
        (["cost", "traffic", "--length", "0"], "--length is a number of tokens, several such as 1024,4096"),
        (["cost"], "missing argument 'RECIPE-OR-PRESET' (see `qkv cost --help`)"),
    ],
)
def test_errors_are_one_sentence(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert message in capsys.readouterr().err


def test_fit_and_layers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "fit", "gpt2", "n_layers=2", "--for", "decoding", "--memory", "1GB"]) == 0
    assert "weights in int4" in capsys.readouterr().out
    assert main(["cost", "layers", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["flops"] == 1_074_790_400


def test_traffic_by_length_and_hardware(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "traffic", "--length", "1024,4096", "--hardware", "a100", "--hardware", "h100", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["tokens"], row["hardware"]) for row in rows] == [
        (n, d) for d in ("a100", "h100") for n in (1024, 4096)
    ]
    assert rows[0]["bytes"]["materialized"] == 2 * 16 * (4 * 1024 * 64 + 4 * 1024**2) and rows[0]["measured"] is None
    assert main(["cost", "traffic", "--length", "64", "--heads", "1", "--measure"]) == 0
    printed = capsys.readouterr().out
    assert "Predicted, of 1 heads of width 64 in bf16" in printed and "Measured here in fp32, 64 tokens:" in printed
