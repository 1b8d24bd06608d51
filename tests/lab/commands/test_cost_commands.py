"""`qkv cost` with several names, --sweep, `fit` and `layers`."""

from __future__ import annotations

import json

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
