"""`qkv cost layers`."""

from __future__ import annotations

import json

import pytest

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_layers_have_the_flops_of_the_formula(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "layers", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["flops"] == 1_074_790_400
