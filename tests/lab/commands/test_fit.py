"""`qkv cost fit` and `qkv cost layers`."""

from __future__ import annotations

import json

import pytest

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_fit_and_layers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "fit", "gpt2", "n_layers=2", "--for", "decoding", "--memory", "1GB"]) == 0
    assert "weights in int4" in capsys.readouterr().out
    assert main(["cost", "layers", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["flops"] == 1_074_790_400
