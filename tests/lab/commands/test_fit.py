"""`qkv cost fit`."""

from __future__ import annotations

import pytest

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_what_fits_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "fit", "gpt2", "n_layers=2", "--for", "decoding", "--memory", "1GB"]) == 0
    assert "weights in int4" in capsys.readouterr().out
