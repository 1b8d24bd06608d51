"""The roofline of `qkv cost`."""

from __future__ import annotations

import pytest

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_the_roofline_is_readable_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "gpt2", "n_layers=1", "--roofline", "--hardware", "h100"]) == 0
    printed = capsys.readouterr().out
    assert "in bf16 (295 FLOPs in the time of a byte)" in printed and "…" not in printed
    assert "scores, tiled" in printed and "scores, materialized" in printed
